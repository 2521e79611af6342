"""Every kind of change that an application makes to tables with rows."""

from django.db import migrations, models


def fill(apps, editor):
    customers = apps.get_model("shop", "Customer").objects.using(editor.connection.alias)
    customers.filter(name="").update(name="nobody")


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AddField("Customer", "level", models.PositiveSmallIntegerField(default=1)),
        migrations.AlterField("Customer", "name", models.CharField(db_index=True, max_length=80)),
        migrations.AlterField("Customer", "note", models.TextField(null=True)),
        migrations.RenameField("Customer", "note", "remark"),
        migrations.AddField("Order", "is_paid", models.BooleanField(default=False)),
        migrations.RemoveField("Order", "discount"),
        migrations.AddIndex(
            "Order",
            models.Index(fields=["placed"], name="order_unpaid", condition=models.Q(is_paid=False)),
        ),
        migrations.AddField("Line", "weight", models.FloatField(default=0.5)),
        migrations.AddIndex("Line", models.Index(fields=["product", "quantity"], name="line_sold")),
        migrations.AddConstraint(
            "Line", models.CheckConstraint(condition=models.Q(quantity__gt=0), name="line_quantity")
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
