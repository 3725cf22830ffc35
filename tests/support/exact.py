"""Exact enumeration: every outcome of a randomised function with its probability as a Fraction.

A function under test asks a ``Source`` for randomness. Each question forks the world; the
function is replayed along every branch, so nothing is sampled and nothing is rounded.
"""

from collections import defaultdict
from fractions import Fraction


class Uniform:
    """A uniform number that is only ever known to lie in [low, high)."""

    def __init__(self, source):
        self._source, self._low, self._high = source, Fraction(0), Fraction(1)

    def below(self, threshold):
        """Whether the number is below ``threshold``; later questions are answered consistently."""
        threshold = min(max(Fraction(threshold), self._low), self._high)
        share = (threshold - self._low) / (self._high - self._low)
        if self._source.fork([share, 1 - share]) == 0:
            self._high = threshold
            return True
        self._low = threshold
        return False

    def pick(self, weights_v):
        """Inverse of the cumulative distribution at this number."""
        total, reached = sum(map(Fraction, weights_v)), Fraction(0)
        last = max(i for i, weight in enumerate(weights_v) if weight > 0)
        for i in range(last):
            reached += Fraction(weights_v[i])
            if weights_v[i] > 0 and self.below(reached / total):
                return i
        return last


class Source:
    """Follows one path of forks; also the ``Randomness`` of the acceptance functions."""

    def __init__(self, path):
        self._path, self._taken = path, []
        self.probability, self.siblings = Fraction(1), []

    def fork(self, probabilities):
        depth = len(self._taken)
        possible = [i for i, probability in enumerate(probabilities) if probability > 0]
        if depth < len(self._path):
            choice = self._path[depth]
        else:
            choice, *others = possible
            self.siblings += [(*self._taken, other) for other in others]
        self._taken.append(choice)
        self.probability *= probabilities[choice]
        return choice

    def uniform(self):
        return Uniform(self)

    def chance(self, numerator, denominator):
        return self.uniform().below(Fraction(numerator) / Fraction(denominator))

    def pick(self, weights_v):
        total = sum(map(Fraction, weights_v))
        return self.fork([Fraction(weight) / total for weight in weights_v])


def law(run):
    """Distribution of ``run(source)`` as {outcome: Fraction}."""
    result, pending = defaultdict(Fraction), [()]
    while pending:
        source = Source(pending.pop())
        result[run(source)] += source.probability
        pending += source.siblings
    assert sum(result.values()) == 1
    return dict(result)


def continue_with(prefix_law, next_row, length):
    """Extend each outcome (a tuple of tokens) to ``length`` with the model ``next_row(prefix)``."""
    result, pending = defaultdict(Fraction), list(prefix_law.items())
    while pending:
        prefix, probability = pending.pop()
        if len(prefix) >= length:
            result[prefix[:length]] += probability
            continue
        row = next_row(prefix)
        pending += [((*prefix, t), probability * w) for t, w in enumerate(row) if w > 0]
    return dict(result)


def total_variation(law_a, law_b):
    keys = law_a.keys() | law_b.keys()
    return sum(abs(law_a.get(k, Fraction(0)) - law_b.get(k, Fraction(0))) for k in keys) / 2
