CREATE TABLE city (name text PRIMARY KEY, people bigint, founded date);
INSERT INTO city VALUES ('Oslo', 717710, '1048-01-01'), ('Bergen', 291940, NULL);
SELECT * FROM city ORDER BY name;
\pset null '(null)'
SELECT name, founded FROM city ORDER BY name;
\x on
SELECT * FROM city WHERE name = 'Oslo';
\x off
BEGIN;
UPDATE city SET people = people + 1 WHERE name = 'Oslo' RETURNING people;
SELECT 1/0;
SELECT 1;
ROLLBACK;
SELECT people FROM city WHERE name = 'Oslo';
\set VERBOSITY sqlstate
INSERT INTO city VALUES ('Oslo', 1, NULL);
SELECT nothing;
\set VERBOSITY default
COPY city FROM STDIN;
Tromsø	77992	\N
Back\\slash	\N	2000-01-01
\.
COPY city TO STDOUT;
COPY (SELECT name, people FROM city ORDER BY people) TO STDOUT WITH (FORMAT csv, HEADER);
\copy (SELECT count(*) FROM city) to stdout
SELECT true AS b, 1.50, 1e100::float8, 'a' || 'b', '\x00ff'::bytea, interval '1 day 02:03:04';
SELECT count(*) FROM city \gset
\echo :count
COMMIT;
BEGIN;
BEGIN;
COMMIT;
PREPARE p (text) AS SELECT people FROM city WHERE name = $1;
EXECUTE p ('Bergen');
DEALLOCATE p;
SET application_name = 'a script';
SHOW application_name;
SELECT 1 AS one \; SELECT 2 AS two;
VACUUM city;
ANALYZE city;
DROP TABLE city;
