"""The first schema."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

IDENTITY = (
    "id",
    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
)


def reference(to, on_delete, **options):
    return models.ForeignKey(to=to, on_delete=on_delete, **options)


class Migration(migrations.Migration):
    initial = True
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]
    operations = [
        migrations.CreateModel(
            "Customer",
            [
                IDENTITY,
                ("name", models.CharField(db_index=True, max_length=40)),
                ("email", models.EmailField(max_length=254, unique=True)),
                ("note", models.TextField()),
                (
                    "user",
                    models.OneToOneField(
                        null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            "Tag",
            [
                IDENTITY,
                ("slug", models.SlugField(unique=True)),
            ],
        ),
        migrations.CreateModel(
            "Product",
            [
                IDENTITY,
                ("key", models.UUIDField(unique=True)),
                ("title", models.CharField(max_length=100)),
                ("price", models.DecimalField(decimal_places=2, max_digits=10)),
                ("released", models.DateField(null=True)),
                ("tags", models.ManyToManyField(related_name="products", to="shop.tag")),
            ],
        ),
        migrations.CreateModel(
            "Order",
            [
                IDENTITY,
                ("customer", reference("shop.customer", models.CASCADE, related_name="orders")),
                ("referrer", reference("shop.customer", models.SET_NULL, null=True, related_name="referred")),
                ("previous", reference("shop.order", models.DO_NOTHING, null=True)),
                ("number", models.IntegerField()),
                ("placed", models.DateTimeField(auto_now_add=True)),
                ("discount", models.IntegerField(null=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("customer", "number"), name="order_number")],
                "indexes": [models.Index(fields=["-placed", "number"], name="order_placed")],
            },
        ),
        migrations.CreateModel(
            "Line",
            [
                IDENTITY,
                ("order", reference("shop.order", models.CASCADE, related_name="lines")),
                ("product", reference("shop.product", models.PROTECT)),
                ("quantity", models.IntegerField(default=1)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("order", "product"), name="line_product")],
            },
        ),
    ]
