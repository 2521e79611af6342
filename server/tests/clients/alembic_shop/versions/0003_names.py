"""Renames."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TABLE_NAMES = ("vendor", "supplier")
COLUMNS = [("supplier", "name", "title"), ("part", "vendor_id", "supplier_id"), ("part", "stock", "in_stock")]
CONSTRAINTS = [
    ("supplier", "vendor_pkey", "supplier_pkey"),
    ("part", "part_vendor_id_fkey", "part_supplier_id_fkey"),
    ("part", "part_stock_known", "part_stock_check"),
]


def rename_constraint(table, old, new):
    op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {old} TO {new}")


def upgrade():
    op.rename_table(*TABLE_NAMES)
    for table, old, new in COLUMNS:
        op.alter_column(table, old, new_column_name=new)
    for table, old, new in CONSTRAINTS:
        rename_constraint(table, old, new)
    op.create_index("part_supplier_id_idx", "part", ["supplier_id"])
    op.create_index("supplier_places_idx", "supplier", ["country", sa.text("lower(title)")])
    op.execute("ALTER INDEX supplier_places_idx RENAME TO supplier_place_idx")


def downgrade():
    op.drop_index("supplier_place_idx", "supplier")
    op.drop_index("part_supplier_id_idx", "part")
    for table, old, new in reversed(CONSTRAINTS):
        rename_constraint(table, new, old)
    for table, old, new in reversed(COLUMNS):
        op.alter_column(table, new, new_column_name=old)
    op.rename_table(*reversed(TABLE_NAMES))
