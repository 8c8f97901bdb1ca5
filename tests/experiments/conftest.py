from tests.iteration_table import table_row, write_table

__all__ = ["table_row", "write_table"]
