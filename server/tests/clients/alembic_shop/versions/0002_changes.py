"""Columns, keys and indexes of tables with rows."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.drop_index("part_colour_idx", "part")
    op.drop_column("part", "colour")
    op.add_column("part", sa.Column("is_active", sa.Boolean, server_default=sa.true(), nullable=False))
    op.add_column("part", sa.Column("key", sa.Uuid))
    op.add_column("part", sa.Column("substitute_id", sa.Integer))
    op.execute("UPDATE part SET stock = 0 WHERE stock IS NULL")
    op.alter_column("part", "stock", nullable=False, server_default="0")
    op.create_check_constraint(op.f("part_stock_known"), "part", "stock >= 0")
    op.create_foreign_key(
        "part_substitute_id_fkey", "part", "part", ["substitute_id"], ["id"], ondelete="SET NULL"
    )
    op.create_foreign_key("part_vendor_id_fkey", "part", "vendor", ["vendor_id"], ["id"], ondelete="CASCADE")
    op.create_index("part_active", "part", ["code"], postgresql_where=sa.text("is_active"))
    op.alter_column("vendor", "name", type_=sa.String(120), existing_type=sa.String(40))
    op.alter_column("vendor", "note", type_=sa.Text, existing_type=sa.String(200), server_default=None)
    op.alter_column("vendor", "note", nullable=True)
    # Not numeric(4, 2) to numeric(5, 2), nor integer to bigint: Strandline would have to write the
    # values anew.
    op.add_column("vendor", sa.Column("country", sa.String(2), server_default="DE", nullable=False))


def downgrade():
    op.drop_column("vendor", "country")
    op.execute("UPDATE vendor SET note = '' WHERE note IS NULL")
    op.alter_column("vendor", "note", nullable=False, server_default="")
    op.drop_index("part_active", "part")
    op.drop_constraint("part_vendor_id_fkey", "part", type_="foreignkey")
    op.drop_constraint("part_substitute_id_fkey", "part", type_="foreignkey")
    op.drop_constraint(op.f("part_stock_known"), "part", type_="check")
    op.alter_column("part", "stock", nullable=True, server_default=None)
    op.drop_column("part", "substitute_id")
    op.drop_column("part", "key")
    op.drop_column("part", "is_active")
    op.add_column("part", sa.Column("colour", sa.String(10)))
    op.create_index("part_colour_idx", "part", ["colour"])
