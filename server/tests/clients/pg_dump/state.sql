-- What must be the same in a database and in one that its dump has been loaded into.
SET search_path = public;
SET timezone = 'UTC';
SET bytea_output = 'hex';
SELECT * FROM shop.customer ORDER BY id;
SELECT * FROM "Orders" ORDER BY no;
SELECT * FROM line ORDER BY "order", n;
SELECT * FROM shop.best ORDER BY id;
SELECT * FROM totals ORDER BY no;
SELECT * FROM nothing;
SELECT * FROM counted ORDER BY id;
SELECT n.nspname, c.relname, c.relkind, i.indisunique, i.indisprimary, i.indnkeyatts, i.indnatts,
    i.indpred IS NOT NULL AS partial, i.indexprs IS NOT NULL AS computed
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE n.nspname IN ('public', 'shop') ORDER BY 1, 2;
SELECT conname, contype, conrelid::regclass, confrelid::regclass, confupdtype, confdeltype,
    condeferrable, condeferred
FROM pg_constraint WHERE connamespace IN ('public'::regnamespace, 'shop'::regnamespace) ORDER BY 1;
SELECT obj_description('shop.customer'::regclass, 'pg_class'), col_description('shop.customer'::regclass, 3),
    obj_description('shop.best'::regclass, 'pg_class'), obj_description('"Orders by day"'::regclass, 'pg_class');
-- Identity columns go on where they were.
INSERT INTO shop.customer (name) VALUES ('next') RETURNING id;
INSERT INTO "Orders" (total) VALUES (1) RETURNING no;
INSERT INTO counted (v) VALUES (3) RETURNING id;
