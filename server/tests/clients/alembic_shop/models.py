"""The models as they are after the last migration of alembic_client.py."""

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

NAMES = {
    "ix": "%(table_name)s_%(column_0_name)s_idx",
    "uq": "%(table_name)s_%(column_0_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "fk": "%(table_name)s_%(column_0_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}


class Base(DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMES)


class Supplier(Base):
    __tablename__ = "supplier"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    title: Mapped[str] = mapped_column(sa.String(120))
    country: Mapped[str] = mapped_column(sa.String(2), server_default="DE")
    note: Mapped[str | None] = mapped_column(sa.Text)
    since = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False)
    rating = mapped_column(sa.Numeric(4, 2))
    parts: Mapped[list["Part"]] = relationship(back_populates="supplier", passive_deletes=True)
    __table_args__ = (sa.Index("supplier_place_idx", "country", sa.text("lower(title)")),)


class Part(Base):
    __tablename__ = "part"
    id: Mapped[int] = mapped_column(sa.Identity(), primary_key=True)
    supplier_id: Mapped[int] = mapped_column(sa.ForeignKey("supplier.id", ondelete="CASCADE"), index=True)
    substitute_id: Mapped[int | None] = mapped_column(sa.ForeignKey("part.id", ondelete="SET NULL"))
    code: Mapped[str] = mapped_column(sa.String(20), unique=True)
    in_stock: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")
    is_active: Mapped[bool] = mapped_column(server_default=sa.true())
    size = mapped_column(sa.Float)
    key = mapped_column(sa.Uuid)
    supplier: Mapped[Supplier] = relationship(back_populates="parts")
    __table_args__ = (
        sa.CheckConstraint("in_stock >= 0", name="stock"),
        sa.Index("part_active", "code", postgresql_where=sa.text("is_active")),
    )
