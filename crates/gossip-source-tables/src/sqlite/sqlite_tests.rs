use std::path::PathBuf;
use std::sync::Mutex;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{CheckedEnumeration, Page, PageLimits, Spoil};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_testkit::test_support::TestDirectory;

use super::*;

/// A file with a table, described by SQL.
struct TestFile {
    path: PathBuf,
    connection: Mutex<Connection>,
    _directory: TestDirectory,
}

impl TestFile {
    fn new(sql: &str) -> Self {
        let directory = TestDirectory::new("tables");
        let path = directory.path().join("a?b.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(sql).unwrap();
        Self { path, connection: Mutex::new(connection), _directory: directory }
    }

    fn name(&self, table: &str) -> OsString {
        format!("{}?table={table}", self.path.display()).into()
    }

    fn sql(&self, sql: &str) {
        self.connection.lock().unwrap().execute_batch(sql).unwrap();
    }

    fn open(&self, table: &str) -> Box<dyn Connector> {
        let name = SqliteTables.resolve(&self.name(table)).unwrap();
        SqliteTables.open(&name).unwrap()
    }

    fn refusal(&self, table: &str) -> String {
        SqliteTables.resolve(&self.name(table)).unwrap_err().to_string()
    }

    /// Every row: its key in its text, and its body.
    fn rows(&self, table: &str) -> Vec<(String, String)> {
        let connector = self.open(table);
        let whole = ShardSpecRef::new(b"", b"", b"");
        let mut listing =
            CheckedEnumeration::open(&*connector, whole, CursorUpdate::initial()).unwrap();
        let mut page = Page::with_limits(PageLimits::try_new(3, 64 * 1024).unwrap());
        let (mut rows, mut scratch) = (Vec::new(), Vec::new());
        loop {
            listing.next_page(&mut page).unwrap();
            for item in page.items() {
                let mut body = String::new();
                let mut opened = connector.open(item, &mut scratch).unwrap();
                std::io::Read::read_to_string(&mut opened, &mut body).unwrap();
                rows.push((KeyFormat::Columns.readable(item.key()), body));
            }
            if page.is_exhausted() {
                return rows;
            }
        }
    }
}

/// A table whose rows are in its fixture.
struct Rows {
    file: TestFile,
    items: Vec<(Vec<ColumnValue>, String)>,
    delete: fn(&[ColumnValue]) -> String,
}

impl Fixture for Rows {
    fn connect(&self) -> Box<dyn Connector> {
        self.file.open("t")
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
        self.file.sql(&(self.delete)(&columns));
        true
    }
}

fn text(text: &str) -> ColumnValue {
    ColumnValue::Text(text.into())
}

#[test]
fn a_table_with_row_numbers_conforms() {
    let file = TestFile::new("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)");
    let numbers = [i64::MIN, -5, -1, 0, 1, 255, 256, 65_536, i64::MAX - 1, i64::MAX];
    let mut items = Vec::new();
    for number in numbers {
        file.sql(&format!("INSERT INTO t VALUES ({number}, 'n{number}')"));
        let body = format!("{{\"id\":{number},\"name\":\"n{number}\"}}");
        items.push((vec![ColumnValue::Integer(number)], body));
    }
    let delete = |key: &[ColumnValue]| match key {
        [ColumnValue::Integer(id)] => format!("DELETE FROM t WHERE id = {id}"),
        _ => panic!("one integer"),
    };
    assert_conforms(&mut Rows { file, items, delete });
}

#[test]
fn a_table_with_a_composite_key_conforms() {
    for without in ["", " WITHOUT ROWID"] {
        let file = TestFile::new(&format!(
            "CREATE TABLE t (b INT, a TEXT, v REAL, PRIMARY KEY (a, b)){without}"
        ));
        let mut items = Vec::new();
        for a in ["", "a", "a b", "aa", "\u{ff3a}", "\u{1d655}", "ab"] {
            for b in [-1, 0, 7] {
                file.sql(&format!("INSERT INTO t VALUES ({b}, '{a}', 1.5)"));
                let body = format!("{{\"b\":{b},\"a\":\"{a}\",\"v\":1.5}}");
                items.push((vec![text(a), ColumnValue::Integer(b)], body));
            }
        }
        let delete = |key: &[ColumnValue]| match key {
            [ColumnValue::Text(a), ColumnValue::Integer(b)] => {
                let a = String::from_utf8_lossy(a);
                format!("DELETE FROM t WHERE a = '{a}' AND b = {b}")
            }
            _ => panic!("a text and an integer"),
        };
        assert_conforms(&mut Rows { file, items, delete });
    }
}

#[test]
fn a_table_with_blobs_and_zero_bytes_conforms() {
    let file = TestFile::new("CREATE TABLE t (k BLOB PRIMARY KEY NOT NULL)");
    let mut items = Vec::new();
    for key in ["", "00", "0000", "0001", "00ff", "01", "ff", "ffff"] {
        file.sql(&format!("INSERT INTO t VALUES (x'{key}')"));
        let bytes = (0..key.len()).step_by(2).map(|at| u8::from_str_radix(&key[at..at + 2], 16));
        let bytes = bytes.collect::<Result<_, _>>().unwrap();
        items.push((vec![ColumnValue::Bytes(bytes)], format!("{{\"k\":\"\\\\x{key}\"}}")));
    }
    let delete = |_: &[ColumnValue]| "DELETE FROM t WHERE k = x'00'".to_owned();
    let mut rows = Rows { file, items, delete };
    // The fixture deletes one row only, the second.
    assert_conforms(&mut rows);
}

#[test]
fn more_rows_than_a_batch_are_listed_once() {
    let file = TestFile::new(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
         INSERT INTO t SELECT i * 3, 'v' || i FROM n",
    );
    let rows = file.rows("t");
    assert_eq!(rows.len(), 5000);
    assert_eq!(rows[4999], ("15000".to_owned(), "{\"id\":15000,\"v\":\"v5000\"}".to_owned()));
}

#[test]
fn samples_of_a_large_table_are_spread_over_it() {
    for sql in ["id INTEGER PRIMARY KEY, v", "id INT, v, PRIMARY KEY (id)"] {
        let file = TestFile::new(&format!(
            "CREATE TABLE t ({sql});
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             INSERT INTO t SELECT i, '' FROM n"
        ));
        let connector = file.open("t");
        let mut sample = Page::with_limits(PageLimits::try_new(100, 64 * 1024).unwrap());
        connector.sample_keys(ShardSpecRef::new(b"", b"", b""), &mut sample).unwrap();
        assert!(sample.len() > 50 && !sample.is_exhausted());
        let middle = sample.items().nth(sample.len() / 2).unwrap();
        let middle: i64 = KeyFormat::Columns.readable(middle.key()).parse().unwrap();
        assert!((8_000..12_000).contains(&middle), "{middle}");
    }
}

#[test]
fn long_rows_are_read_one_by_one() {
    let file = TestFile::new(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);
         INSERT INTO t VALUES (1, replace(hex(zeroblob(20000)), '0', 'x')), (2, 'short'),
         (3, replace(hex(zeroblob(700000)), '0', 'y'))",
    );
    let rows = file.rows("t");
    let lens: Vec<usize> = rows.iter().map(|(_, body)| body.len()).collect();
    assert_eq!(lens, [40_015, 20, 1_400_015]);
}

#[test]
fn values_are_json() {
    let file = TestFile::new(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, d, e, \"q\"\"x\");
         INSERT INTO t VALUES (1, NULL, 1.0, 9e999, x'00FF', 'a\"' || char(10), -9e999)",
    );
    let expected =
        r#"{"id":1,"a":null,"b":1.0,"c":"Infinity","d":"\\x00ff","e":"a\"\n","q\"x":"-Infinity"}"#;
    assert_eq!(file.rows("t"), [("1".to_owned(), expected.to_owned())]);
}

#[test]
fn a_text_that_is_no_utf8_is_unread_and_its_neighbours_are_not() {
    let file = TestFile::new(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v);
         INSERT INTO t VALUES (1, 'a'), (2, CAST(x'FF' AS TEXT)), (3, 'c')",
    );
    let connector = file.open("t");
    let open = |id| {
        let key = encode_columns(&[ColumnValue::Integer(id)]);
        connector.open(gossip_contracts::connector::PageItem::new(&key), &mut Vec::new()).map(drop)
    };
    assert_eq!((open(1), open(2), open(3)), (Ok(()), Err(OpenError::Malformed), Ok(())));
}

#[test]
fn an_empty_table_has_no_rows() {
    let file = TestFile::new("CREATE TABLE t (id UUID PRIMARY KEY NOT NULL)");
    assert_eq!(file.rows("t"), []);
}

#[test]
fn unusable_tables_are_refused_with_the_reason() {
    let file = TestFile::new(
        "CREATE TABLE plain (a INT);
         CREATE TABLE nulls (a TEXT PRIMARY KEY);
         INSERT INTO nulls VALUES ('a'), (NULL);
         CREATE TABLE mixed (a TEXT, b INT, PRIMARY KEY (a, b));
         INSERT INTO mixed VALUES ('a', 1), ('a', 'b');
         CREATE TABLE blobs (a TEXT PRIMARY KEY);
         INSERT INTO blobs VALUES ('a'), (x'61');
         CREATE TABLE strict (a ANY NOT NULL PRIMARY KEY) STRICT;
         INSERT INTO strict VALUES ('a'), (1);
         CREATE TABLE folded (a TEXT COLLATE NOCASE PRIMARY KEY);
         CREATE TABLE down (a TEXT, PRIMARY KEY (a DESC));
         CREATE TABLE real (a REAL PRIMARY KEY);
         INSERT INTO real VALUES (1.5);
         CREATE VIEW seen AS SELECT * FROM plain",
    );
    for (table, part) in [
        ("none", "no such table"),
        ("plain", "no primary key"),
        ("nulls", "NULL"),
        ("mixed", "another type"),
        ("blobs", "another type"),
        ("strict", "another type"),
        ("folded", "NOCASE"),
        ("down", "descending"),
        ("real", "type real"),
        ("seen", "view"),
    ] {
        let refusal = file.refusal(table);
        assert!(refusal.contains(part), "{table}: {refusal}");
    }
    let missing = SqliteTables.resolve(OsStr::new("/nowhere/x.db?table=t")).unwrap_err();
    assert!(missing.to_string().contains("cannot be read"), "{missing}");
}

#[test]
fn a_file_in_utf16_is_refused() {
    let file = TestFile::new("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a TEXT PRIMARY KEY)");
    assert!(file.refusal("t").contains("UTF-16le"), "{}", file.refusal("t"));
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = TestDirectory::new("tables");
    let path = directory.path().join("x.db");
    std::fs::write(&path, "no database at all, but long enough to be one").unwrap();
    let name: OsString = format!("{}?table=t", path.display()).into();
    assert!(SqliteTables.resolve(&name).is_err());
}

/// Rows that are inserted, deleted and moved between two pages neither repeat nor hide others.
#[test]
fn rows_that_stay_are_listed_once_while_others_change() {
    let file = TestFile::new(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
         INSERT INTO t SELECT i * 2, '' FROM n",
    );
    let connector = file.open("t");
    let whole = ShardSpecRef::new(b"", b"", b"");
    let mut listing =
        CheckedEnumeration::open(&*connector, whole, CursorUpdate::initial()).unwrap();
    let mut page = Page::default();
    let mut seen = Vec::new();
    for round in 0_i64.. {
        listing.next_page(&mut page).unwrap();
        seen.extend(page.items().map(|item| KeyFormat::Columns.readable(item.key())));
        if page.is_exhausted() {
            break;
        }
        let (insert, delete, from) = (round * 2 + 1, 12_000 - round * 4, 4 + round * 4);
        file.sql(&format!(
            "INSERT INTO t VALUES ({insert}, ''); DELETE FROM t WHERE id = {delete};
             UPDATE t SET id = id + 50001 WHERE id = {from}"
        ));
    }
    let mut unique = seen.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), seen.len(), "no key twice");
    let stays = (1..=6000_i64).map(|i| i * 2);
    let stays = stays.filter(|id| id % 4 == 2 && *id < 11_000);
    assert!(stays.clone().count() > 2000);
    assert!(stays.map(|id| id.to_string()).all(|id| unique.binary_search(&id).is_ok()));
}

#[test]
fn the_stamp_changes_with_the_key_and_not_with_the_rows() {
    let file = TestFile::new("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
    let stamp = || SqliteTables.stamp(&file.name("t")).unwrap();
    let before = stamp();
    file.sql("INSERT INTO t VALUES (1, 2); ALTER TABLE t ADD COLUMN w");
    assert_eq!(stamp(), before);
    file.sql("DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY)");
    assert_ne!(stamp(), before);
}
