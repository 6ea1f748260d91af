use std::sync::Arc;

use gossip_contracts::connector::ConnectorError;
use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::rows::*;
use super::source_file::SourceFile;
use super::test_support::TempDir;

fn rows_of(content: &[u8], syntax: RowSyntax, buffer: usize) -> Result<Vec<Row>, ConnectorError> {
    let directory = TempDir::new();
    let file = SourceFile::open(&directory.write("rows", content)).unwrap();
    let mut scanner = RowScanner::new(Arc::new(file), syntax, 0, buffer);
    let mut rows = Vec::new();
    while let Some(row) = scanner.next_row()? {
        rows.push(row);
    }
    Ok(rows)
}

fn texts(content: &[u8], syntax: RowSyntax) -> Vec<Vec<u8>> {
    let cut = |row: &Row| content[row.start as usize..row.end as usize].to_vec();
    rows_of(content, syntax, 3).unwrap().iter().map(cut).collect()
}

fn bytes(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn rows_need_not_be_text() {
    assert_eq!(texts(b"\xff\0\n\xfe", RowSyntax::Lines), [&b"\xff\0"[..], b"\xfe"]);
}

#[rstest]
#[case("", &[])]
#[case("\n", &[""])]
#[case("a", &["a"])]
#[case("a\n", &["a"])]
#[case("a\n\nb", &["a", "", "b"])]
#[case("a\r\nb\r\n", &["a", "b"])]
#[case("a\rb\r", &["a\rb\r"])]
#[case("\r\n\r\r\n", &["", "\r"])]
#[case("\"a\nb\"\n", &["\"a", "b\""])]
fn a_line_feed_ends_a_line(#[case] content: &str, #[case] expected: &[&str]) {
    assert_eq!(texts(content.as_bytes(), RowSyntax::Lines), bytes(expected));
}

#[rstest]
#[case("a,b\nc", &["a,b", "c"])]
#[case("\"a\nb\",c\nd\n", &["\"a\nb\",c", "d"])]
#[case("x,\"a\r\n\r\nb\"\r\ny", &["x,\"a\r\n\r\nb\"", "y"])]
#[case("\"say \"\"\n\"\"\"\nz", &["\"say \"\"\n\"\"\"", "z"])]
#[case("\"\",\"\"\n\"\"\n", &["\"\",\"\"", "\"\""])]
#[case("5\" tall\nb", &["5\" tall", "b"])]
#[case("\"a\"b\nc", &["\"a\"b", "c"])]
fn a_line_feed_inside_quotes_ends_no_row(#[case] content: &str, #[case] expected: &[&str]) {
    assert_eq!(texts(content.as_bytes(), RowSyntax::Csv), bytes(expected));
}

#[test]
fn a_file_that_ends_inside_quotes_is_malformed() {
    let refused = rows_of(b"a\nb,\"c\nd\n", RowSyntax::Csv, 64);
    assert_eq!(refused, Err(ConnectorError::Malformed { position: 2 }));
}

proptest! {
    #[test]
    fn the_size_of_the_buffer_does_not_matter(
        content in vec(prop::sample::select(b"a\",\r\n".to_vec()), 0..30),
        buffer in 1..8_usize,
    ) {
        for syntax in [RowSyntax::Lines, RowSyntax::Csv] {
            let whole = rows_of(&content, syntax, 64);
            prop_assert_eq!(rows_of(&content, syntax, buffer), whole);
        }
    }

    #[test]
    fn rows_tile_the_file(content in vec(prop::sample::select(b"a\",\r\n".to_vec()), 0..30)) {
        for syntax in [RowSyntax::Lines, RowSyntax::Csv] {
            let Ok(rows) = rows_of(&content, syntax, 5) else { continue };
            let ends = rows.iter().map(|row| row.next);
            let starts = rows.iter().map(|row| row.start).chain([content.len() as u64]);
            prop_assert!([0].into_iter().chain(ends).eq(starts));
            prop_assert!(rows.iter().all(|row| row.start <= row.end && row.end <= row.next));
        }
    }
}
