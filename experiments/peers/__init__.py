"""Our policies beside the decisions of other people's programs: one module a program."""
