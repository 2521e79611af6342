"""Alembic: migrations up and down over tables with rows, and autogenerate, which finds nothing to do."""

import os
import pathlib
import sys

import sqlalchemy as sa
from alembic import autogenerate, command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy.orm import Session

HERE = pathlib.Path(__file__).parent / "alembic_shop"
sys.path.insert(0, str(HERE))

from models import Base, Part, Supplier  # noqa: E402 (its directory comes from here)


def migrate(engine, work, *arguments):
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.set_main_option("path_separator", "os")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        work(config, *arguments)
        connection.commit()


def differences(engine):
    """The indexes that autogenerate would remove by itself; it finds nothing else."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        found = autogenerate.compare_metadata(context, Base.metadata)
    assert all(kind == "remove_index" for kind, _ in found), found
    return {index.name for _, index in found}


def columns(engine, table):
    return {column["name"]: column for column in sa.inspect(engine).get_columns(table)}


def with_rows(engine):
    """Rows of the first schema."""
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO vendor (name, rating) VALUES ('first', 1.25), ('second', 99.99)"))
        parts = "INSERT INTO part (vendor_id, code, stock, colour) VALUES (1, 'a', NULL, 'red'), (2, 'b', 7, NULL)"
        connection.execute(sa.text(parts))


def at_head(engine):
    """The rows have the defaults and new names; the keys act."""
    with Session(engine) as session:
        first, second = session.scalars(sa.select(Supplier).order_by(Supplier.id)).all()
        assert (first.title, first.country, first.note) == ("first", "DE", ""), vars(first)
        assert (str(second.rating), second.parts[0].code) == ("99.99", "b")
        assert [(part.in_stock, part.is_active) for part in first.parts] == [(0, True)]
        long = Supplier(title="t" * 120, rating=12)
        long.parts = [Part(code="c"), Part(code="d")]
        session.add(long)
        session.flush()
        long.parts[0].substitute_id = long.parts[1].id
        session.commit()
        session.execute(sa.delete(Part).where(Part.code == "d"))
        session.commit()
        assert session.scalar(sa.select(Part.substitute_id).where(Part.code == "c")) is None
        session.delete(long)
        session.commit()
        assert session.scalars(sa.select(Part.code).order_by(Part.code)).all() == ["a", "b"]
        for wrong in [Part(code="e", supplier_id=99), Part(code="f", supplier_id=1, in_stock=-1)]:
            session.add(wrong)
            try:
                session.commit()
                raise AssertionError("a constraint was not enforced")
            except sa.exc.IntegrityError:
                session.rollback()


def main():
    url = "postgresql+psycopg://ada@127.0.0.1:%s/strandline" % os.environ["PGPORT"]
    engine = sa.create_engine(url)
    migrate(engine, command.upgrade, "0001")
    with_rows(engine)
    try:
        migrate(engine, command.check)
        raise AssertionError("the first schema is not the models' and has no differences")
    except CommandError:
        pass
    migrate(engine, command.upgrade, "head")
    migrate(engine, command.check)
    # Without the environment's rule: the indexes that the foreign keys have made, nothing else.
    assert differences(engine) <= {"part_substitute_id_fkey_idx", "part_vendor_id_fkey_idx"}, differences(engine)
    at_head(engine)

    migrate(engine, command.downgrade, "0001")
    vendor, part = columns(engine, "vendor"), columns(engine, "part")
    assert list(vendor) == ["id", "name", "note", "since", "rating"], list(vendor)
    assert not vendor["note"]["nullable"] and vendor["note"]["default"] is not None, vendor["note"]
    assert part["stock"]["nullable"] and part["stock"]["default"] is None, part["stock"]
    assert set(part) == {"id", "vendor_id", "code", "stock", "size", "colour"}, set(part)
    assert not sa.inspect(engine).get_foreign_keys("part")
    migrate(engine, command.upgrade, "head")
    migrate(engine, command.check)
    migrate(engine, command.downgrade, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]

    # What the models make themselves has no differences either.
    Base.metadata.create_all(engine)
    assert differences(engine) <= {"part_substitute_id_fkey_idx", "part_supplier_id_fkey_idx"}, differences(engine)
    Base.metadata.drop_all(engine)


if __name__ == "__main__":
    main()
