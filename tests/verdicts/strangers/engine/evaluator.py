# SPDX-License-Identifier: Apache-2.0


class Evaluator:
    def __init__(self, model, criterion):
        self.model, self.criterion = model, criterion

    def run(self, loader):
        self.model.eval()
        losses = []
        for x, y in loader:
            predicted = self.model(x.cuda())  # culprit: engine-validation
            losses.append(self.criterion(predicted, y.cuda()))
        self.model.train()
        return sum(losses) / len(losses)
