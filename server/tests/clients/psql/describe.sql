CREATE TABLE city (id bigint PRIMARY KEY, name varchar(40) NOT NULL UNIQUE, area numeric(10,2) DEFAULT 0, founded date);
\d city
CREATE VIEW big AS SELECT name FROM city WHERE area > 100;
\d big
SELECT id, name, area, founded FROM city \gdesc
\d nothing
\dL
DROP VIEW big;
DROP TABLE city;
