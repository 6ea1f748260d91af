//! Names of items, taken apart.

use super::{number, parts};
use std::ffi::OsStr;
use std::path::Path;

#[test]
fn the_place_of_a_line_ends_at_the_first_number_behind_a_colon() {
    assert_eq!(parts("urls.txt:2 https://bad/2"), Some(("urls.txt", 2, "https://bad/2")));
    assert_eq!(parts("a:b.csv:17"), Some(("a:b.csv", 17, "")));
    assert_eq!(parts("-:3 x:4 y"), Some(("-", 3, "x:4 y")));
    for not_a_place in ["urls.txt", "https://host:80/x", "a:2x", "a:", ":99999999999999999999"] {
        assert_eq!(parts(not_a_place), None, "{not_a_place}");
    }
}

#[test]
fn a_number_is_that_of_the_file_of_the_run_only() {
    let number = |typed: &str| number(Path::new("/data/urls.txt"), OsStr::new(typed));
    assert_eq!(number("7"), Some(7));
    assert_eq!(number("urls.txt:7"), Some(7));
    assert_eq!(number("../data/urls.txt:7 https://x"), Some(7));
    assert_eq!(number("https://host:80"), None);
    assert_eq!(number("other.txt:7"), None);
}
