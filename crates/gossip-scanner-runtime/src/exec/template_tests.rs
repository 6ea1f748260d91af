use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rstest::rstest;

use super::{Template, TemplateError};

fn command(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn filled(words: &[&str], keys: &[&[u8]]) -> Vec<OsString> {
    Template::parse(&command(words)).unwrap().arguments(keys)
}

#[rstest]
#[case::behind(&["wc"], &["a", "b"])]
#[case::in_place(&["wc", "-l", "{}", "--"], &["-l", "a", "b", "--"])]
#[case::twice(&["diff", "{}", "{}"], &["a", "b", "a", "b"])]
fn keys_become_arguments(#[case] words: &[&str], #[case] expected: &[&str]) {
    assert_eq!(filled(words, &[b"a", b"b"]), expected);
    assert!(Template::parse(&command(words)).unwrap().takes_many());
}

#[test]
fn a_key_inside_an_argument_comes_alone() {
    let words = ["curl", "-o", "{}.html", "https://example.org/{}?{}"];
    assert!(!Template::parse(&command(&words)).unwrap().takes_many());
    assert_eq!(filled(&words, &[b"k"]), ["-o", "k.html", "https://example.org/k?k"]);
}

#[test]
fn any_bytes_are_one_argument() {
    let key = b"a \n$(rm -rf ~);\xFF{}";
    assert_eq!(filled(&["echo", "{}"], &[key]), [OsStr::from_bytes(key)]);
    assert_eq!(filled(&["echo", "x{}"], &[b"{}"]), ["x{}"], "a key is not a place");
}

#[rstest]
#[case::nothing(&[], TemplateError::Empty)]
#[case::empty(&[""], TemplateError::Empty)]
#[case::program(&["{}"], TemplateError::PlaceInProgram)]
#[case::script(&["sh", "-c", "rm {}"], TemplateError::PlaceInScript)]
#[case::bundle(&["/bin/bash", "-euc", "echo {}"], TemplateError::PlaceInScript)]
fn what_cannot_be_run_is_refused(#[case] words: &[&str], #[case] error: TemplateError) {
    assert_eq!(Template::parse(&command(words)), Err(error));
}

#[test]
fn a_script_gets_keys_as_its_arguments() {
    let words = ["sh", "-c", "echo \"$1\"", "sh", "{}"];
    assert_eq!(filled(&words, &[b"k"]), ["-c", "echo \"$1\"", "sh", "k"]);
}
