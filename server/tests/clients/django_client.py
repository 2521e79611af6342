"""Django on its postgresql backend: migrations forwards and backwards, queries, introspection."""

import datetime
import decimal
import io
import os
import uuid

import django
from django.conf import settings

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": "127.0.0.1",
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "NAME": os.environ["PGDATABASE"],
            # Strandline has no cursors by name.
            "DISABLE_SERVER_SIDE_CURSORS": True,
        }
    },
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.admin",
        "shop",
    ],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    SECRET_KEY="of the test",
    USE_TZ=True,
    TIME_ZONE="UTC",  # Strandline knows no other by name
)
django.setup()

from django.contrib.auth import authenticate  # noqa: E402 (models need the settings)
from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, transaction  # noqa: E402
from django.db.models import Avg, Count, Exists, F, OuterRef, ProtectedError, Q, Sum  # noqa: E402
from django.db.models.functions import Lower, TruncMonth  # noqa: E402
from shop.models import Customer, Line, Order, Product, Tag  # noqa: E402

TABLES = {f"shop_{name}" for name in ["customer", "line", "order", "product", "product_tags", "tag"]}


def migrate(*target):
    call_command("migrate", *target, verbosity=0, interactive=False)


def tables():
    with connection.cursor() as cursor:
        return {table.name for table in connection.introspection.get_table_list(cursor)}


def constraints(table):
    with connection.cursor() as cursor:
        return connection.introspection.get_constraints(cursor, table)


def fails(error, work):
    """The work fails with this error, and undoes no more than itself."""
    try:
        with transaction.atomic():
            work()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def from_nothing():
    """The first schema with rows, which the second migration changes."""
    migrate("shop", "0001")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop_customer (name, email, note) VALUES ('', 'a@b.c', 'old')")
    migrate()
    call_command("makemigrations", check=True, dry_run=True)
    old = Customer.objects.get()
    assert (old.name, old.level, old.remark) == ("nobody", 1, "old"), vars(old)
    old.name = "n" * 80
    old.remark = None
    old.save()
    old.delete()
    assert TABLES <= tables() and {"auth_user", "django_session", "django_admin_log"} <= tables()
    assert Permission.objects.filter(content_type__app_label="shop").count() == 20


def introspection():
    """What inspectdb and the schema editor read."""
    order = constraints("shop_order")
    keys = {tuple(c["columns"]): c["foreign_key"] for c in order.values() if c["foreign_key"]}
    assert keys == {
        ("customer_id",): ("shop_customer", "id"),
        ("referrer_id",): ("shop_customer", "id"),
        ("previous_id",): ("shop_order", "id"),
    }, keys
    assert order["order_number"]["unique"] and order["order_number"]["columns"] == ["customer_id", "number"]
    placed = order["order_placed"]
    assert placed["index"] and placed["columns"] == ["placed", "number"], placed
    assert placed["orders"] == ["DESC", "ASC"], placed
    assert constraints("shop_line")["line_quantity"]["check"]
    primary = [c["columns"] for c in order.values() if c["primary_key"]]
    assert primary == [["id"]], primary
    with connection.cursor() as cursor:
        relations = connection.introspection.get_relations(cursor, "shop_line")
        sequences = connection.introspection.get_sequences(cursor, "shop_line")
    assert {column: relation[:2] for column, relation in relations.items()} == {
        "order_id": ("id", "shop_order"),
        "product_id": ("id", "shop_product"),
    }, relations
    assert [s["column"] for s in sequences] == ["id"], sequences
    written = io.StringIO()
    call_command("inspectdb", "shop_customer", "shop_line", stdout=written)
    for field in ["name = models.CharField(max_length=80)", "email = models.CharField(unique=True, max_length=254)"]:
        assert field in written.getvalue(), written.getvalue()


def objects():
    """Queries of the ORM, and what the foreign keys allow."""
    tags = Tag.objects.bulk_create(Tag(slug=f"tag-{n}") for n in range(5))
    assert all(tag.pk for tag in tags)
    products = Product.objects.bulk_create(
        Product(key=uuid.uuid4(), title=f"Product {n}", price=decimal.Decimal(n) / 4) for n in range(20)
    )
    for n, product in enumerate(products):
        product.tags.set(tags[: n % 3])
    ada, created = Customer.objects.get_or_create(email="ada@x.y", defaults={"name": "Ada"})
    assert created
    ada, created = Customer.objects.get_or_create(email="ada@x.y", defaults={"name": "No"})
    assert not created and ada.name == "Ada"
    bob, _ = Customer.objects.update_or_create(email="bob@x.y", defaults={"name": "Bob"})
    bob, created = Customer.objects.update_or_create(email="bob@x.y", defaults={"name": "Bob B."})
    assert not created
    for number in range(10):
        order = Order.objects.create(customer=ada if number % 2 else bob, referrer=ada, number=number)
        lines = (Line(order=order, product=p, quantity=number + 1) for p in products[: number + 1])
        Line.objects.bulk_create(lines)
    Order.objects.filter(number=9).update(previous=Order.objects.get(number=7))

    with connection.execute_wrapper(counted := Counted()):
        lines = Line.objects.select_related("order__customer", "product").filter(quantity=10)
        assert {line.order.customer.name for line in lines} == {"Ada"}
        found = Order.objects.prefetch_related("lines__product__tags").order_by("number")
        assert [len(order.lines.all()) for order in found] == list(range(1, 11))
        assert sum(len(line.product.tags.all()) for line in found[9].lines.all()) == 9
    assert counted.statements == 5, counted.statements

    Line.objects.filter(order__number=3).update(quantity=F("quantity") * 2 + 1)
    assert set(Line.objects.filter(order__number=3).values_list("quantity", flat=True)) == {9}
    totals = Customer.objects.annotate(n=Count("orders"), q=Sum("orders__lines__quantity", default=0))
    assert dict(totals.values_list("email", "q")) == {"ada@x.y": 4 + 36 + 36 + 64 + 100, "bob@x.y": 165}
    many = Order.objects.annotate(n=Count("lines")).filter(n__gt=8).values_list("number", flat=True)
    assert sorted(many) == [8, 9]
    dear = Line.objects.filter(order=OuterRef("pk"), product__price__gte=2)
    assert Order.objects.filter(Exists(dear)).count() == 2
    assert Order.objects.filter(Q(number__in=[1, 2]) | Q(customer__name__startswith="Bob")).count() == 6
    assert Customer.objects.filter(name__iexact="ADA", email__icontains="X.Y").get() == ada
    assert list(Customer.objects.order_by(Lower("name").desc()).values_list("name", flat=True)) == ["Bob B.", "Ada"]
    months = Order.objects.annotate(month=TruncMonth("placed")).values("month").annotate(n=Count("id"))
    assert [m["n"] for m in months] == [10], months
    assert Product.objects.aggregate(Avg("price"))["price__avg"] == decimal.Decimal("2.375")
    assert Product.objects.filter(tags__slug="tag-0").distinct().count() == 13
    Product.objects.filter(title="Product 1").update(released=datetime.date(2026, 2, 28))
    assert Product.objects.filter(released__year=2026).get().title == "Product 1"
    assert [p.title for p in Product.objects.raw("SELECT * FROM shop_product ORDER BY id LIMIT 1")] == ["Product 0"]
    changed = list(Product.objects.order_by("id")[:3])
    for product in changed:
        product.price += 1
    assert Product.objects.bulk_update(changed, ["price"]) == 3
    Tag.objects.bulk_create([Tag(slug="tag-0"), Tag(slug="new")], ignore_conflicts=True)
    assert Tag.objects.count() == 6

    fails(IntegrityError, lambda: Customer.objects.create(name="Again", email="ada@x.y"))
    fails(IntegrityError, lambda: Line.objects.filter(order__number=0).update(quantity=0))
    fails(ProtectedError, lambda: products[0].delete())
    with transaction.atomic():
        # Deferred until the commit: the parent comes after its child.
        first = Order.objects.create(customer_id=bob.pk + 1, number=1)
        assert Customer.objects.create(pk=bob.pk + 1, name="Late", email="late@x.y").pk == first.customer_id
    fails(IntegrityError, lambda: Order.objects.create(customer_id=1_000_000, number=2))
    Order.objects.filter(previous__isnull=False).update(previous=None)
    ada.delete()
    assert Order.objects.filter(referrer=None).count() == Order.objects.count() == 6
    assert Line.objects.count() == 1 + 3 + 5 + 7 + 9


class Counted:
    """Counts statements."""

    statements = 0

    def __call__(self, execute, *arguments):
        self.statements += 1
        return execute(*arguments)


def transactions():
    """Savepoints, locks, hooks."""
    done = []
    with transaction.atomic():
        bob = Customer.objects.select_for_update().get(email="bob@x.y")
        bob.level = F("level") + 1
        bob.save()
        fails(ZeroDivisionError, lambda: (bob.delete(), 1 // 0))
        inner = transaction.savepoint()
        Customer.objects.update(level=99)
        transaction.savepoint_rollback(inner)
        transaction.on_commit(lambda: done.append(True))
        assert not done
    assert done and Customer.objects.get(email="bob@x.y").level == 2
    with transaction.atomic():
        locked = Order.objects.select_for_update(of=("self",), skip_locked=True).select_related("customer")
        assert len(locked) == 6
    with transaction.atomic():
        assert len(Order.objects.select_for_update(nowait=True, no_key=True)) == 6
    orders = Order.objects.order_by("pk").iterator(chunk_size=2)
    assert len(list(orders)) == 6


def contributed():
    """Users, groups, sessions, content types."""
    user = User.objects.create_user("grace", password="secret")
    group = Group.objects.create(name="clerks")
    group.permissions.set(Permission.objects.filter(codename__startswith="view_"))
    user.groups.add(group)
    assert authenticate(username="grace", password="secret").has_perm("shop.view_order")
    assert authenticate(username="grace", password="wrong") is None
    session = SessionStore()
    session["cart"] = [1, 2]
    session.save()
    assert SessionStore(session.session_key)["cart"] == [1, 2]


def main():
    from_nothing()
    introspection()
    objects()
    transactions()
    contributed()
    call_command("flush", verbosity=0, interactive=False)
    assert not Order.objects.exists() and not User.objects.exists()
    assert Permission.objects.exists()  # made again after the flush
    assert Tag.objects.create(slug="first").pk == 1
    migrate("shop", "0001")
    assert "line_quantity" not in constraints("shop_line")
    migrate("shop", "zero")
    assert not TABLES & tables()
    migrate()
    for app in ["shop", "admin", "sessions", "auth", "contenttypes"]:
        migrate(app, "zero")
    assert tables() == {"django_migrations"}, tables()


if __name__ == "__main__":
    main()
