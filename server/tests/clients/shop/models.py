"""The models as they are after the last migration."""

from django.conf import settings
from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=80, db_index=True)
    email = models.EmailField(unique=True)
    remark = models.TextField(null=True)
    level = models.PositiveSmallIntegerField(default=1)
    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE)


class Tag(models.Model):
    slug = models.SlugField(unique=True)


class Product(models.Model):
    key = models.UUIDField(unique=True)
    title = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    released = models.DateField(null=True)
    tags = models.ManyToManyField(Tag, related_name="products")


class Order(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="orders")
    referrer = models.ForeignKey(Customer, null=True, on_delete=models.SET_NULL, related_name="referred")
    previous = models.ForeignKey("self", null=True, on_delete=models.DO_NOTHING)
    number = models.IntegerField()
    placed = models.DateTimeField(auto_now_add=True)
    is_paid = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["customer", "number"], name="order_number")]
        indexes = [
            models.Index(fields=["-placed", "number"], name="order_placed"),
            models.Index(fields=["placed"], name="order_unpaid", condition=models.Q(is_paid=False)),
        ]


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.IntegerField(default=1)
    weight = models.FloatField(default=0.5)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["order", "product"], name="line_product"),
            models.CheckConstraint(condition=models.Q(quantity__gt=0), name="line_quantity"),
        ]
        indexes = [models.Index(fields=["product", "quantity"], name="line_sold")]
