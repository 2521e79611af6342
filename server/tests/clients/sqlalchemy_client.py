"""SQLAlchemy through its PostgreSQL dialect: the schema written, reflected and used."""

import os

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    owner: Mapped[str] = mapped_column(sa.String(40), nullable=False)
    balance = mapped_column(sa.Numeric(12, 2), server_default="0")
    opened = mapped_column(sa.DateTime)
    __table_args__ = (
        sa.UniqueConstraint("owner"),
        sa.Index("account_opened", opened.desc(), "id", postgresql_include=["balance"]),
        sa.Index("account_lower", sa.text("lower(owner)"), unique=True),
        sa.Index("account_rich", "balance", postgresql_where=sa.text("balance > 1000")),
    )


def main():
    engine = sa.create_engine("postgresql+psycopg://ada@127.0.0.1:%s/strandline" % os.environ["PGPORT"])
    Base.metadata.create_all(engine)

    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["account"], inspector.get_table_names()
    columns = {c["name"]: c for c in inspector.get_columns("account")}
    assert list(columns) == ["id", "owner", "balance", "opened"]
    assert isinstance(columns["id"]["type"], sa.BigInteger)
    assert columns["owner"]["type"].length == 40
    assert not columns["owner"]["nullable"]
    balance = columns["balance"]["type"]
    assert (balance.precision, balance.scale) == (12, 2)
    assert isinstance(columns["opened"]["type"], sa.DateTime)
    assert inspector.get_pk_constraint("account")["constrained_columns"] == ["id"]
    uniques = inspector.get_unique_constraints("account")
    assert [u["column_names"] for u in uniques] == [["owner"]], uniques
    indexes = {i["name"]: i for i in inspector.get_indexes("account")}
    assert sorted(indexes) == ["account_lower", "account_opened", "account_owner_key", "account_rich"], indexes
    opened = indexes["account_opened"]
    assert opened["column_names"] == ["opened", "id"] and not opened["unique"], opened
    assert opened["column_sorting"] == {"opened": ("desc",)}, opened
    assert opened["dialect_options"]["postgresql_include"] == ["balance"], opened
    assert indexes["account_lower"]["unique"], indexes["account_lower"]
    assert indexes["account_lower"]["expressions"] == ["lower(owner)"], indexes["account_lower"]
    assert indexes["account_owner_key"]["duplicates_constraint"] == "account_owner_key"
    where = indexes["account_rich"]["dialect_options"]["postgresql_where"]
    assert "balance > 1000" in where, where
    assert inspector.has_table("account") and not inspector.has_table("nothing")

    reflected = sa.Table("account", sa.MetaData(), autoload_with=engine)
    assert [c.name for c in reflected.primary_key] == ["id"]

    with Session(engine) as session:
        session.add_all(Account(id=i, owner=f"owner {i}", balance=i * 10) for i in range(50))
        session.commit()
        some = session.scalars(sa.select(Account).where(Account.id < 3).order_by(Account.id)).all()
        assert [a.owner for a in some] == ["owner 0", "owner 1", "owner 2"]
        some[0].balance += 5
        session.delete(some[2])
        session.commit()
        total = session.scalar(sa.select(sa.func.sum(Account.balance)))
        assert total == sum(range(50)) * 10 + 5 - 20, total
        try:
            session.add(Account(id=1, owner="again"))
            session.commit()
            raise AssertionError("a duplicate key was accepted")
        except sa.exc.IntegrityError:
            session.rollback()
    Base.metadata.drop_all(engine)


if __name__ == "__main__":
    main()
