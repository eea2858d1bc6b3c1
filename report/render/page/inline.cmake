# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.18)

# Makes one C file of the page's parts:
#   cmake -DPAGE_DIR=... -DSCRIPTS=a.js,b.js,... -DD3=... -DOUTPUT=... -P inline.cmake
# The bytes go through hexadecimal digits, in which no character means anything to CMake or to C.
function(split_at marker hex before after)
  string(HEX "${marker}" needle)
  string(FIND "${hex}" "${needle}" at)
  math(EXPR inside_a_byte "${at} % 2")
  if(at LESS 0 OR inside_a_byte)
    message(FATAL_ERROR "${PAGE_DIR}/page.html: ${marker} was not found")
  endif()
  string(LENGTH "${needle}" length)
  math(EXPR rest "${at} + ${length}")
  string(SUBSTRING "${hex}" 0 ${at} head)
  string(SUBSTRING "${hex}" ${rest} -1 tail)
  set(${before} "${head}" PARENT_SCOPE)
  set(${after} "${tail}" PARENT_SCOPE)
endfunction()

function(array name hex result)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  set(${result}
      "const unsigned char ${name}[] = {${bytes}};\nconst size_t ${name}_bytes = sizeof(${name});\n"
      PARENT_SCOPE)
endfunction()

file(READ ${PAGE_DIR}/page.html page HEX)
file(READ ${PAGE_DIR}/page.css style HEX)
set(script "")
string(REPLACE "," ";" names "${SCRIPTS}")
foreach(name ${names})
  file(READ ${PAGE_DIR}/${name} part HEX)
  string(APPEND script "${part}")
endforeach()
set(d3 "")
if(D3)
  file(READ ${D3} d3 HEX)
endif()
split_at("@STYLE@" "${page}" first page)
split_at("@DATA@" "${page}" second page)
split_at("@D3@" "${page}" third page)
split_at("@SCRIPT@" "${page}" fourth last)
array(ms_page_head "${first}${style}${second}" head)
array(ms_page_tail "${third}${d3}${fourth}${script}${last}" tail)
file(WRITE ${OUTPUT} "#include \"report/render/page_parts.h\"\n\n${head}${tail}")
