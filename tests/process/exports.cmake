# SPDX-License-Identifier: Apache-2.0
# Forms for other programs; the run that they are of comes from the unit tests' generator.
list(APPEND suites test_exports test_one_story)
