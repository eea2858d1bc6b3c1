# SPDX-License-Identifier: Apache-2.0
# The page in a browser; the run that it is of comes from the unit tests' generator.
list(APPEND suites test_page test_page_views test_page_leaks)
