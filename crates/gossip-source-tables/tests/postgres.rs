//! Tables of a real PostgreSQL server.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::sync::LazyLock;
use std::thread;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{
    CheckedEnumeration, Connector, ConnectorError, Page, PageItem, PageLimits, Spoil,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_coordination_postgres::PostgresEnvironment;
use gossip_frontier::{ColumnValue, encode_columns};
use gossip_scanner_runtime::connectors::{KeyFormat, SourceFamily as _};
use gossip_source_tables::PostgresTables;
use gossip_testkit::test_support::{PostgresOptions, PostgresServer};

const WHOLE: ShardSpecRef<'_> = ShardSpecRef::new(b"", b"", b"");

/// One server for all tests; each has a schema of its own.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::single);

fn family() -> PostgresTables {
    PostgresTables::new(PostgresEnvironment::default())
}

fn name_on(server: &PostgresServer, schema: &str, table: &str) -> OsString {
    let (user, port) = (server.user(), server.port());
    format!("//{user}@127.0.0.1:{port}/postgres?schema={schema}&table={table}").into()
}

/// A schema of a test.
struct Schema(&'static str);

impl Schema {
    fn new(name: &'static str, sql: &str) -> Self {
        SERVER.sql(&format!("CREATE SCHEMA {name}; SET search_path = {name}; {sql}"));
        Self(name)
    }

    fn sql(&self, sql: &str) -> String {
        SERVER.sql(&format!("SET search_path = {}; {sql}", self.0))
    }

    fn name(&self, table: &str) -> OsString {
        name_on(&SERVER, self.0, table)
    }

    fn open(&self, table: &str) -> Box<dyn Connector> {
        let name = family().resolve(&self.name(table)).unwrap();
        family().open(&name).unwrap()
    }

    fn refusal(&self, table: &str) -> String {
        family().resolve(&self.name(table)).unwrap_err().to_string()
    }
}

/// Every row: its key in its text, and its body.
fn rows(connector: &dyn Connector) -> Vec<(String, String)> {
    let mut listing = CheckedEnumeration::open(connector, WHOLE, CursorUpdate::initial()).unwrap();
    let mut page = Page::default();
    let (mut rows, mut scratch) = (Vec::new(), Vec::new());
    loop {
        listing.next_page(&mut page).unwrap();
        for item in page.items() {
            let mut body = String::new();
            connector.open(item, &mut scratch).unwrap().read_to_string(&mut body).unwrap();
            rows.push((KeyFormat::Columns.readable(item.key()), body));
        }
        if page.is_exhausted() {
            return rows;
        }
    }
}

struct Rows {
    schema: Schema,
    items: Vec<(Vec<ColumnValue>, String)>,
    delete: fn(&[ColumnValue]) -> String,
}

impl Fixture for Rows {
    fn connect(&self) -> Box<dyn Connector> {
        self.schema.open("t")
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let items = self.items.iter();
        items.map(|(key, body)| ExpectedItem::new(encode_columns(key), body.as_bytes())).collect()
    }

    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        if spoil != Spoil::Vanish {
            return false;
        }
        let at = self.items.iter().position(|(columns, _)| encode_columns(columns) == key).unwrap();
        let (columns, _) = self.items.remove(at);
        self.schema.sql(&(self.delete)(&columns));
        true
    }
}

#[test]
fn a_table_with_integers_conforms() {
    let schema = Schema::new("integers", "CREATE TABLE t (id bigint PRIMARY KEY, v text)");
    let mut items = Vec::new();
    for id in [i64::MIN, -70_000, -1, 0, 1, 255, 256, 65_536, i64::MAX] {
        schema.sql(&format!("INSERT INTO t VALUES ({id}, 'v')"));
        let body = format!("{{\"id\":{id},\"v\":\"v\"}}");
        items.push((vec![ColumnValue::Integer(id)], body));
    }
    let delete = |key: &[ColumnValue]| match key {
        [ColumnValue::Integer(id)] => format!("DELETE FROM t WHERE id = {id}"),
        _ => panic!("one integer"),
    };
    assert_conforms(&mut Rows { schema, items, delete });
}

#[test]
fn a_table_with_a_composite_key_conforms() {
    let sql = "CREATE TABLE t (a text COLLATE \"C\", b smallint, c uuid, PRIMARY KEY (a, b, c))";
    let schema = Schema::new("composite", sql);
    let mut items = Vec::new();
    for a in ["", "a", "a b", "Z", "\u{ff3a}", "\u{1d655}"] {
        for b in [-3_i16, 5] {
            for c in [0_u8, 0xFF] {
                let uuid = format!("{c:02x}").repeat(16);
                schema.sql(&format!("INSERT INTO t VALUES ('{a}', {b}, '{uuid}')"));
                let (head, tail) = uuid.split_at(8);
                let (x, y, z, rest) = (&tail[..4], &tail[4..8], &tail[8..12], &tail[12..]);
                let uuid = format!("{head}-{x}-{y}-{z}-{rest}");
                let body = format!("{{\"a\":\"{a}\",\"b\":{b},\"c\":\"{uuid}\"}}");
                let key = vec![
                    ColumnValue::Text(a.into()),
                    ColumnValue::Integer(b.into()),
                    ColumnValue::Uuid([c; 16]),
                ];
                items.push((key, body));
            }
        }
    }
    let delete = |key: &[ColumnValue]| match key {
        [ColumnValue::Text(a), ColumnValue::Integer(b), ColumnValue::Uuid(c)] => {
            let (a, c) = (String::from_utf8_lossy(a), format!("{:02x}", c[0]).repeat(16));
            format!("DELETE FROM t WHERE (a, b, c) = ('{a}', {b}, '{c}')")
        }
        _ => panic!("a text, an integer and a uuid"),
    };
    assert_conforms(&mut Rows { schema, items, delete });
}

/// A key in another collation is refused with the statement that helps, and after it the table is
/// listed by the new index.
#[test]
fn a_text_key_needs_an_index_in_the_order_of_bytes() {
    let psql =
        Schema::new("texts", "CREATE TABLE t (\"a b\" text COLLATE \"und-x-icu\" PRIMARY KEY)");
    psql.sql("INSERT INTO t VALUES ('a'), ('B'), ('c')");
    let refusal = psql.refusal("t");
    let statement = refusal.split_once("run ").unwrap().1;
    assert_eq!(
        statement,
        "CREATE UNIQUE INDEX CONCURRENTLY ON \"texts\".\"t\" (\"a b\" COLLATE \"C\")"
    );
    SERVER.sql(statement);
    let keys: Vec<String> = rows(&*psql.open("t")).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["\"B\"", "\"a\"", "\"c\""]);
}

#[test]
fn unusable_tables_are_refused_with_the_reason() {
    let schema = Schema::new(
        "unusable",
        "CREATE TABLE plain (a int);
         CREATE TABLE floats (a float8 PRIMARY KEY);
         CREATE TABLE padded (a char(5) PRIMARY KEY);
         CREATE TABLE parts (a int PRIMARY KEY) PARTITION BY RANGE (a);
         CREATE TABLE parent (a int PRIMARY KEY);
         CREATE TABLE child () INHERITS (parent);
         CREATE VIEW seen AS SELECT 1 AS a",
    );
    for (table, part) in [
        ("none", "no such table"),
        ("plain", "no primary key"),
        ("floats", "double precision"),
        ("padded", "character"),
        ("parts", "partitions"),
        ("parent", "partitions"),
        ("seen", "ordinary tables"),
    ] {
        let refusal = schema.refusal(table);
        assert!(refusal.contains(part), "{table}: {refusal}");
    }
}

/// The plan of its pages names steps that are not taken, in the names of its index.
#[test]
fn a_table_may_be_called_like_a_step_of_a_plan() {
    let table = "\"Seq Scan\" (a int CONSTRAINT \"Sort Key\" PRIMARY KEY)";
    let schema = Schema::new("named", &format!("CREATE TABLE {table}"));
    schema.sql("INSERT INTO \"Seq Scan\" VALUES (1)");
    assert_eq!(rows(&*schema.open("Seq%20Scan")).len(), 1);
}

/// Behind a pooler a setting of the connection may be that of another one.
#[test]
fn rows_are_read_with_their_settings_whatever_the_connection_is_set_to() {
    let schema = Schema::new(
        "unset",
        "CREATE TABLE t (a int PRIMARY KEY, b bytea);
         INSERT INTO t VALUES (1, 'x');
         CREATE ROLE unset LOGIN; GRANT USAGE ON SCHEMA unset TO unset;
         GRANT SELECT ON t TO unset; ALTER ROLE unset SET bytea_output = 'escape'",
    );
    let name = schema.name("t").into_string().unwrap().replace("gossip@", "unset@");
    let listed = rows(&*family().open(OsStr::new(&name)).unwrap());
    assert_eq!(listed[0].1, r#"{"a":1,"b":"\\x78"}"#);
    // A policy that comes during the run must not shorten the table.
    schema.sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY");
    let table = family().open(OsStr::new(&name)).unwrap();
    let mut listing = table.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    let page = listing.next_page(&mut Page::default());
    assert_eq!(page, Err(ConnectorError::PermissionDenied));
}

#[test]
fn a_url_with_a_password_or_a_pooler_is_refused() {
    for (name, part) in [
        ("//u:p@127.0.0.1/db?table=t", "password"),
        ("//u@127.0.0.1/db?pooler=transaction&table=t", "pooler"),
        ("//u@127.0.0.1/db", "?table=NAME"),
        ("//u@127.0.0.1:1/db?table=t", "no connection"),
        ("//u@example.org/db?table=t", "ca=FILE"),
    ] {
        let refusal = family().resolve(OsStr::new(name)).unwrap_err().to_string();
        assert!(refusal.contains(part), "{name}: {refusal}");
    }
}

/// A policy hides rows from a role without an error, unless the session asks for one.
#[test]
fn rows_that_a_policy_hides_are_an_error_and_not_missing() {
    let schema = Schema::new(
        "hidden",
        "CREATE TABLE t (a int PRIMARY KEY);
         INSERT INTO t VALUES (1), (2);
         ALTER TABLE t ENABLE ROW LEVEL SECURITY;
         CREATE POLICY first ON t USING (a = 1);
         CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA hidden TO reader;
         GRANT SELECT ON t TO reader",
    );
    let name = schema.name("t").into_string().unwrap().replace("gossip@", "reader@");
    let refusal = family().resolve(OsStr::new(&name)).unwrap_err().to_string();
    assert!(refusal.contains("row security"), "{refusal}");
}

#[test]
fn large_tables_are_listed_and_sampled() {
    let schema = Schema::new(
        "large",
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i * 7, repeat('x', 50) FROM generate_series(1, 50000) i;
         INSERT INTO t VALUES (3, repeat('long', 10000)), (5, repeat('longer', 300000))",
    );
    let connector = schema.open("t");
    let listed = rows(&*connector);
    assert_eq!(listed.len(), 50_002);
    assert_eq!(listed[0].1.len(), 40_000 + 15);
    assert_eq!(listed[1].1.len(), 1_800_000 + 15);
    let mut sample = Page::with_limits(PageLimits::try_new(100, 64 * 1024).unwrap());
    connector.sample_keys(WHOLE, &mut sample).unwrap();
    assert_eq!(sample.len(), 100);
    let middle = KeyFormat::Columns.readable(sample.items().nth(50).unwrap().key());
    assert!((140_000..210_000).contains(&middle.parse::<i32>().unwrap()), "{middle}");
}

/// Rows are inserted, deleted and given other keys by another session throughout a listing.
#[test]
fn rows_that_stay_are_listed_once_while_others_change() {
    let schema = Schema::new(
        "changing",
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         INSERT INTO t SELECT i * 10, 0 FROM generate_series(1, 40000) i",
    );
    let connector = schema.open("t");
    let writer = thread::spawn(|| {
        for round in 0..30 {
            SERVER.sql(&format!(
                "INSERT INTO changing.t SELECT i * 10 + 1 + {round} % 4, 1
                   FROM generate_series(1, 40000, 97) i ON CONFLICT DO NOTHING;
                 DELETE FROM changing.t WHERE id % 10 = 2;
                 UPDATE changing.t SET id = id + 2 WHERE id % 10 = 1 AND id % 3 = 0
                   AND NOT EXISTS (SELECT FROM changing.t x WHERE x.id = changing.t.id + 2)"
            ));
        }
    });
    let listed = rows(&*connector);
    writer.join().unwrap();
    let ids: Vec<i64> = listed.iter().map(|(key, _)| key.parse().unwrap()).collect();
    let unique: BTreeSet<i64> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "no key twice");
    assert!((1..=40_000).all(|i| unique.contains(&(i * 10))), "no row that stays is missing");
}

/// A statement that waits for a lock is cancelled, as by a standby: the page is read again.
#[test]
fn a_cancelled_page_is_read_again() {
    let schema = Schema::new(
        "cancelled",
        "CREATE TABLE t (id int PRIMARY KEY);
         INSERT INTO t SELECT generate_series(1, 100)",
    );
    let connector = schema.open("t");
    let lock = thread::spawn(|| {
        SERVER.sql("BEGIN; LOCK cancelled.t IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(2); COMMIT")
    });
    let waiting =
        "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%cancelled%'";
    let locked = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted \
                  AND relation = 'cancelled.t'::regclass";
    while SERVER.sql(locked) == "0" {
        thread::yield_now();
    }
    let reader = thread::spawn(move || rows(&*connector).len());
    let mut cancelled = 0;
    while !lock.is_finished() && cancelled < 3 {
        let sql = format!("SELECT count(*) FROM (SELECT pg_cancel_backend(pid) {waiting}) x");
        cancelled += SERVER.sql(&sql).parse::<u32>().unwrap();
    }
    lock.join().unwrap();
    assert!(cancelled > 0, "nothing was cancelled");
    assert_eq!(reader.join().unwrap(), 100);
}

/// A standby that applies the removal of rows cancels statements which might still see them.
#[test]
fn a_table_on_a_standby_is_listed() {
    let options = PostgresOptions {
        settings: vec!["max_standby_streaming_delay=0".to_owned()],
        ..PostgresOptions::default()
    };
    let primary = PostgresServer::with_options(&options);
    let standby = PostgresServer::synchronous_standby(&primary);
    primary
        .sql("SET synchronous_commit = remote_apply; CREATE TABLE t (id int PRIMARY KEY, v int)");
    primary.sql(
        "SET synchronous_commit = remote_apply; \
         INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i",
    );
    let name = family().resolve(&name_on(&standby, "public", "t")).unwrap();
    let connector = family().open(&name).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                primary.sql("DELETE FROM t WHERE id % 1000 = 1");
                primary.sql("VACUUM t");
                primary.sql(
                    "INSERT INTO t SELECT i, 1 FROM generate_series(1, 20000, 1000) i \
                     ON CONFLICT DO NOTHING",
                );
            }
        });
        for _ in 0..5 {
            let ids = rows(&*connector).into_iter().map(|(key, _)| key);
            let ids: BTreeSet<i64> = ids.map(|key| key.parse().unwrap()).collect();
            assert!((1..=20_000).filter(|id| id % 1000 != 1).all(|id| ids.contains(&id)));
        }
    });
}

#[test]
fn a_restarted_server_costs_a_page_and_not_the_run() {
    let mut server = PostgresServer::single();
    server.sql("CREATE TABLE t (id int PRIMARY KEY)");
    server.sql("INSERT INTO t SELECT generate_series(1, 5000)");
    let name = family().resolve(&name_on(&server, "public", "t")).unwrap();
    let connector = family().open(&name).unwrap();
    assert_eq!(rows(&*connector).len(), 5000);
    server.restart();
    assert_eq!(rows(&*connector).len(), 5000);
}

#[test]
fn the_stamp_changes_with_the_key_and_not_with_the_rows() {
    let schema = Schema::new("stamps", "CREATE TABLE t (id text COLLATE \"C\" PRIMARY KEY)");
    let stamp = || family().stamp(&schema.name("t")).unwrap();
    let before = stamp();
    schema.sql("INSERT INTO t VALUES ('a'); ALTER TABLE t ADD COLUMN v int");
    assert_eq!(stamp(), before);
    schema.sql("ALTER TABLE t ALTER COLUMN id TYPE text COLLATE \"POSIX\"");
    assert_ne!(stamp(), before);
}

#[test]
fn keys_of_another_table_are_gone() {
    let schema = Schema::new("foreign_keys", "CREATE TABLE t (id int PRIMARY KEY)");
    schema.sql("INSERT INTO t VALUES (1)");
    let connector = schema.open("t");
    let mut scratch = Vec::new();
    let text = encode_columns(&[ColumnValue::Text(b"1".to_vec())]);
    let beyond = encode_columns(&[ColumnValue::Integer(i64::MAX)]);
    for key in [&text[..], &beyond, b"x", b""] {
        let error = connector.open(PageItem::new(key), &mut scratch).unwrap_err();
        assert_eq!(error, gossip_contracts::connector::OpenError::Vanished);
    }
}
