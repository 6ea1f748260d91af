//! The table of guarantees in docs/sources.md, compared with what the sources do.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use gossip::connector::{
    CheckedEnumeration, Connector, ConnectorError, Page, PageError, PageLimits,
};
use gossip::model::{CursorUpdate, ShardSpecRef};
use gossip::sources::{Source, SourceEnvironment, SourceOptions, registry};
use gossip_testkit::test_support::TestDirectory;

const DOCUMENT: &str = include_str!("../../../docs/sources.md");
const WHOLE: ShardSpecRef<'_> = ShardSpecRef::new(b"", b"", b"");

/// The rows of the table: schemes, order, snapshot, version, resume.
fn table() -> Vec<[String; 5]> {
    let section = DOCUMENT.split("## Guarantees\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| {
        let cells = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        cells.collect::<Vec<_>>().try_into().unwrap()
    });
    cells.collect()
}

fn row_of(scheme: &str) -> [String; 5] {
    let is_its = |row: &[String; 5]| row[0].contains(&format!("`{scheme}`"));
    table().into_iter().find(is_its).unwrap()
}

#[test]
fn every_source_has_a_row() {
    let listed: BTreeSet<String> = table()
        .iter()
        .flat_map(|row| row[0].split(", ").map(|name| name.trim_matches('`').to_owned()))
        .collect();
    // The debug output of a registry is the set of its schemes.
    let shown = format!("{:?}", registry(&SourceEnvironment::default()));
    let known = shown.trim_matches(['{', '}']).split(", ");
    let mut known: BTreeSet<String> = known.map(|it| it.trim_matches('"').to_owned()).collect();
    // Without the feature there is no such source here.
    known.insert("s3".to_owned());
    assert_eq!(listed, known);
}

fn parse(text: &str) -> Source {
    let registry = registry(&SourceEnvironment::default());
    registry.parse(OsStr::new(text), SourceOptions::NONE).unwrap()
}

/// Lists a source in pages of two, changes it after the first page, and returns how many items were
/// listed; resumes after each key and compares.
fn listed_while_changed(
    connector: &dyn Connector,
    change: impl FnOnce(),
) -> Result<usize, PageError> {
    let mut page = Page::with_limits(PageLimits::try_new(2, 64 * 1024).unwrap());
    let mut listing = CheckedEnumeration::open(connector, WHOLE, CursorUpdate::initial())?;
    listing.next_page(&mut page)?;
    let (mut count, mut last) = (page.len(), page.items().last().unwrap().key().to_vec());
    change();
    // The runtime resumes so: behind the last key, by another listing.
    let cursor = last.clone();
    let from = CursorUpdate::with_last_key(&cursor);
    let mut listing = CheckedEnumeration::open(connector, WHOLE, from)?;
    while !page.is_exhausted() {
        listing.next_page(&mut page)?;
        for item in page.items() {
            assert!(*item.key() > *last, "keys ascend");
            last = item.key().to_vec();
        }
        count += page.len();
    }
    Ok(count)
}

/// Runs SQL on a file by the library of Python.
fn sqlite(path: &Path, sql: &str) {
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let run = Command::new("python3").args(["-c", script]).arg(path).arg(sql).status();
    assert!(run.unwrap().success());
}

#[test]
fn a_tree_is_listed_as_it_is_and_has_no_version() {
    let [_, _, snapshot, version, resume] = row_of("tree");
    let directory = TestDirectory::new("guarantees");
    (0..6).for_each(|n| std::fs::write(directory.path().join(format!("f{n}")), "x").unwrap());
    let source = parse(&format!("tree:{}", directory.path().display()));
    assert!(snapshot.starts_with("directory") && version == "none");
    assert_eq!(source.stamp().unwrap(), None);
    let connector = source.open().unwrap();
    let change = || std::fs::write(directory.path().join("f9"), "x").unwrap();
    assert_eq!(listed_while_changed(&*connector, change).unwrap(), 7);
    assert_eq!(resume, "behind the last key");
}

#[test]
fn a_file_that_changes_parks_its_shards_and_refuses_to_resume() {
    for (scheme, content) in
        [("lines", "a\nb\nc\nd\n"), ("jsonl", "1\n2\n3\n4\n"), ("csv", "h\n1\n2\n3\n4\n")]
    {
        let [_, _, snapshot, version, resume] = row_of(scheme);
        let directory = TestDirectory::new("guarantees");
        let path = directory.path().join("file");
        std::fs::write(&path, content).unwrap();
        let source = parse(&format!("{scheme}:{}", path.display()));
        let (stamp, connector) = (source.stamp().unwrap(), source.open().unwrap());
        assert!(snapshot.contains("a change parks") && version == "size and time of the file");
        assert!(stamp.is_some() && resume.contains("refused after a change"));
        let change = || std::fs::write(&path, format!("{content}more\n")).unwrap();
        let error = listed_while_changed(&*connector, change).unwrap_err();
        assert_eq!(error, PageError::Connector(ConnectorError::SourceChanged), "{scheme}");
        assert_eq!(source.check_stamp(stamp), Err(ConnectorError::SourceChanged));
    }
}

#[test]
fn a_table_is_listed_page_by_page_and_refuses_another_key() {
    let [_, order, snapshot, version, resume] = row_of("sqlite");
    assert_eq!(
        row_of("postgres"),
        [row_of("sqlite")[0].clone(), order, snapshot.clone(), version.clone(), resume.clone()]
    );
    let directory = TestDirectory::new("guarantees");
    let path = directory.path().join("file.db");
    sqlite(
        &path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY);
        INSERT INTO t VALUES (1), (2), (3), (4), (5), (6)",
    );
    let source = parse(&format!("sqlite:{}?table=t", path.display()));
    let (stamp, connector) = (source.stamp().unwrap(), source.open().unwrap());
    assert!(snapshot.starts_with("page") && version == "none");
    let change = || sqlite(&path, "INSERT INTO t VALUES (7); DELETE FROM t WHERE id IN (1, 4)");
    assert_eq!(listed_while_changed(&*connector, change).unwrap(), 6);
    assert_eq!(source.check_stamp(stamp), Ok(()), "rows may change");
    assert!(resume.contains("refused if the columns of the key changed"));
    sqlite(&path, "DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY)");
    assert_eq!(source.check_stamp(stamp), Err(ConnectorError::SourceChanged));
}

#[test]
fn numbers_do_not_change() {
    let [_, _, snapshot, version, resume] = row_of("range");
    let source = parse("range:0..9");
    assert_eq!((&*snapshot, &*version, &*resume), ("constant", "constant", "behind the last key"));
    assert_eq!(source.stamp().unwrap(), None);
    assert_eq!(listed_while_changed(&*source.open().unwrap(), || ()).unwrap(), 9);
}
