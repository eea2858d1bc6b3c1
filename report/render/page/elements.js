// SPDX-License-Identifier: Apache-2.0
// Elements from data. Text is set as text, never as markup: names are a stranger's.

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function replace(id, ...children) {
  document.getElementById(id).replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// What a readout says of what is pointed at. It never becomes lower: a chart below it that moved up and down would
// have another part under the pointer each time.
function tellIn(readout, ...children) {
  readout.replaceChildren(...children.filter(Boolean));
  readout.style.minHeight = `${readout.offsetHeight}px`;
}

function button(text, title, act) {
  return element("button", { type: "button", title, onclick: act }, text);
}

function choice(label, options, chosen, choose) {
  const select = element("select", { onchange: () => choose(Number(select.value)) },
    options.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
  return element("label", {}, `${label} `, select);
}

async function copyText(text, done) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not every browser lets a page from disk reach the clipboard; the old way still works there.
    const area = element("textarea", { class: "aside" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  done();
}

function heading(title, ...explanation) {
  return [element("h2", {}, title), element("p", { class: "explanation" }, ...explanation)];
}
