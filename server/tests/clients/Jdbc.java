import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.Arrays;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** The PostgreSQL JDBC driver: types in both formats, batches, cursors, COPY, errors. */
public class Jdbc {
    static Connection connect(String options) throws SQLException {
        var env = System.getenv();
        var url = "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/strandline"
            + "?user=ada&" + options;
        return DriverManager.getConnection(url);
    }

    static void check(boolean right, String what) {
        if (!right) {
            throw new AssertionError(what);
        }
    }

    /** Enough executions that the driver prepares by name and asks for binary values. */
    static final int OFTEN = 12;

    static void types(Connection c) throws SQLException {
        try (var s = c.createStatement()) {
            s.execute("CREATE TABLE t (a int PRIMARY KEY, b bigint, c numeric(12,2), d text, "
                + "e date, f timestamp, g boolean, h uuid, i bytea, j double precision)");
        }
        var id = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");
        var moment = LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4000);
        var insert = "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        try (var p = c.prepareStatement(insert)) {
            for (int i = 0; i < OFTEN; i++) {
                p.setInt(1, i);
                p.setLong(2, 1L << 40);
                p.setBigDecimal(3, new BigDecimal("-12.50"));
                p.setString(4, i % 2 == 0 ? null : "text " + i);
                p.setObject(5, LocalDate.of(2024, 2, 29));
                p.setObject(6, moment);
                p.setBoolean(7, true);
                p.setObject(8, id);
                p.setBytes(9, new byte[] {0, -1});
                p.setDouble(10, 1.5);
                p.addBatch();
            }
            check(Arrays.stream(p.executeBatch()).allMatch(n -> n == 1), "batch");
        }
        try (var p = c.prepareStatement("SELECT * FROM t WHERE a = ?")) {
            for (int i = 0; i < OFTEN; i++) {
                p.setInt(1, i);
                try (var r = p.executeQuery()) {
                    check(r.next(), "row");
                    check(r.getLong("b") == 1L << 40, "bigint");
                    check(r.getBigDecimal("c").equals(new BigDecimal("-12.50")), "numeric");
                    var text = r.getString("d");
                    check(i % 2 == 0 ? text == null : text.equals("text " + i), "text");
                    check(r.getObject("e", LocalDate.class).equals(LocalDate.of(2024, 2, 29)), "date");
                    check(r.getObject("f", LocalDateTime.class).equals(moment), "timestamp");
                    check(r.getBoolean("g"), "boolean");
                    check(r.getObject("h").equals(id), "uuid");
                    check(Arrays.equals(r.getBytes("i"), new byte[] {0, -1}), "bytea");
                    check(r.getDouble("j") == 1.5, "double");
                    check(!r.next(), "one row");
                }
            }
        }
    }

    static void cursors(Connection c) throws SQLException {
        c.setAutoCommit(false);
        try (var s = c.createStatement()) {
            s.setFetchSize(100);
            try (var r = s.executeQuery("SELECT i FROM generate_series(1, 1050) AS t(i)")) {
                long sum = 0;
                while (r.next()) {
                    sum += r.getInt(1);
                }
                check(sum == 1050L * 1051 / 2, "sum");
            }
        }
        c.commit();
        c.setAutoCommit(true);
    }

    static void transactions(Connection c) throws SQLException {
        c.setAutoCommit(false);
        try (var s = c.createStatement()) {
            s.executeUpdate("DELETE FROM t");
            var savepoint = c.setSavepoint();
            try {
                s.executeUpdate("INSERT INTO t (a) VALUES (1), (1)");
                check(false, "duplicate key");
            } catch (SQLException e) {
                check(e.getSQLState().equals("23505"), e.getSQLState());
            }
            c.rollback(savepoint);
            c.rollback();
            try (var r = s.executeQuery("SELECT count(*) FROM t")) {
                r.next();
                check(r.getInt(1) == OFTEN, "rolled back");
            }
        }
        c.commit();
        c.setAutoCommit(true);
    }

    static void copies(Connection c) throws Exception {
        try (var s = c.createStatement()) {
            s.execute("CREATE TABLE u (a int, b text)");
        }
        CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
        var data = "1\tone\n2\t\\N\n";
        check(copy.copyIn("COPY u FROM STDIN", new StringReader(data)) == 2, "copied in");
        var out = new StringWriter();
        check(copy.copyOut("COPY u TO STDOUT", out) == 2, "copied out");
        check(out.toString().equals(data), out.toString());
    }

    public static void main(String[] arguments) throws Exception {
        for (var mode : new String[] {"extended", "simple"}) {
            try (var c = connect("preferQueryMode=" + mode + "&prepareThreshold=3")) {
                types(c);
                if (mode.equals("extended")) {
                    cursors(c);
                }
                transactions(c);
                copies(c);
                try (var s = c.createStatement()) {
                    s.execute("DROP TABLE t; DROP TABLE u");
                }
            }
        }
    }
}
