# SPDX-License-Identifier: Apache-2.0
"""Records what comes out of some modules."""


class ActivationRecorder:
    def __init__(self, model, names):
        self.records = {name: [] for name in names}
        self.handles = []
        for name, module in model.named_modules():
            if name in self.records:
                self.handles.append(module.register_forward_hook(self.hook(name)))

    def hook(self, name):
        def record(_module, _inputs, output):
            self.records[name].append(output)

        return record

    def statistics(self):
        return {name: tuple(records[-1].shape) for name, records in self.records.items()}

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.records.clear()
