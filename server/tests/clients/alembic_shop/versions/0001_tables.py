"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade():
    op.create_table(
        "vendor",
        sa.Column("id", sa.BigInteger, sa.Identity(), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("note", sa.String(200), nullable=False, server_default=""),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("rating", sa.Numeric(4, 2)),
        sa.PrimaryKeyConstraint("id", name="vendor_pkey"),
    )
    op.create_table(
        "part",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("vendor_id", sa.BigInteger, nullable=False),
        sa.Column("code", sa.String(20), nullable=False),
        sa.Column("stock", sa.BigInteger),
        sa.Column("size", sa.Float),
        sa.Column("colour", sa.String(10)),
        sa.UniqueConstraint("code", name="part_code_key"),
    )
    op.create_index("part_colour_idx", "part", ["colour"])


def downgrade():
    op.drop_index("part_colour_idx", "part")
    op.drop_table("part")
    op.drop_table("vendor")
