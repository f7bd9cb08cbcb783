"""Does memory earn its place? Cases with a right and a wrong answer, run against the shipped fake, and a report.

`stand` is a host's services in this process, `cases` the questions, `runner` asks them all, `report` says how it went
without a word of content, `gates` which promotions that allows.
"""
