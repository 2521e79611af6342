insert into orders
  select o_orderkey + 10000000, o_custkey, o_orderstatus, o_totalprice, o_orderdate + 1,
         o_orderpriority, o_clerk, o_shippriority, o_comment
  from orders where o_orderkey % 100 = 7;
insert into lineitem
  select l_orderkey + 10000000, l_partkey, l_suppkey, l_linenumber, l_quantity + 1, l_extendedprice,
         l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate + 1, l_commitdate,
         l_receiptdate + 1, l_shipinstruct, l_shipmode, l_comment
  from lineitem where l_orderkey % 100 = 7;
update lineitem set l_quantity = l_quantity + 40, l_discount = 0.06 where l_orderkey % 64 = 3;
update lineitem set l_returnflag = 'R', l_extendedprice = l_extendedprice * 1.1
  where l_partkey % 37 = 5 and l_linenumber = 1;
update orders set o_orderstatus = 'F', o_orderpriority = '1-URGENT' where o_custkey % 41 = 2;
update orders set o_totalprice = o_totalprice + 1000 where o_orderkey % 3 = 0;
update customer set c_acctbal = -c_acctbal, c_mktsegment = 'BUILDING' where c_custkey % 50 = 11;
update partsupp set ps_supplycost = ps_supplycost * 0.5, ps_availqty = ps_availqty + 100
  where ps_partkey % 29 = 4;
update part set p_brand = 'Brand#23', p_container = 'MED BOX' where p_partkey % 97 = 13;
update supplier set s_comment = 'Customer Complaints' where s_suppkey % 100 = 50;
delete from lineitem where l_orderkey % 101 = 5;
delete from orders where o_orderkey % 101 = 5;
delete from partsupp where ps_partkey % 211 = 1;
