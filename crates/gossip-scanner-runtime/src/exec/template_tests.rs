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

/// Commands whose shell would read a key as code, word by word.
const AS_CODE: [&[&str]; 30] = [
    &["sh", "-c"],
    &["sh", "-c", "{}"],
    &["sh", "-c", "{}", "sh", "x"],
    &["sh", "-cx", "echo {}"],
    &["sh", "-ec", "echo {}"],
    &["sh", "-e", "-c", "echo {}"],
    &["sh", "-c", "--", "echo {}"],
    &["sh", "-c", "--"],
    &["sh", "-c", "-", "echo {}"],
    &["sh", "+c", "echo {}"],
    &["sh", "-o", "noclobber", "-ceu", "echo {}"],
    &["sh", "-oc", "noclobber", "echo {}"],
    &["sh", "-{}", "echo x"],
    &["bash", "-ce", "echo {}"],
    &["bash", "-ceu", "echo {}"],
    &["bash", "-c", "-e", "echo {}"],
    &["bash", "-c", "-o", "pipefail", "+u", "echo {}"],
    &["bash", "-euo", "pipefail", "-c", "echo {}"],
    &["bash", "--rcfile", "x", "-lc", "echo {}"],
    &["/usr/bin/dash", "-c", "echo {}"],
    &["fish", "-d2", "-c", "echo {}"],
    &["fish", "-c", "cat", "-c", "echo {}"],
    &["fish", "--command=echo {}"],
    &["fish", "--command", "echo {}"],
    &["env", "A=1", "sh", "-c", "echo {}"],
    &["nice", "/bin/bash", "-c", "echo {}"],
    &["timeout", "5", "sh", "-c", "echo {}"],
    &["setsid", "xargs", "sh", "-c", "echo {}"],
    &["busybox", "ash", "-c", "echo {}"],
    &["sh", "-c", "\"$@\"", "sh", "sh", "-c", "echo {}"],
];

#[test]
fn a_key_is_never_code_of_a_shell() {
    for words in AS_CODE {
        let parsed = Template::parse(&command(words));
        assert_eq!(parsed, Err(TemplateError::PlaceInScript), "{words:?}");
    }
}

/// Commands that only look a little like that.
const HARMLESS: [&[&str]; 20] = [
    &["grep", "-c", "{}"],
    &["wc", "-c", "{}"],
    &["wc", "-c"],
    &["sh", "{}"],
    &["sh", "script.sh", "{}"],
    &["sh", "script.sh", "-c", "{}"],
    &["sh", "-eu", "script.sh", "--file={}"],
    &["bash", "-o", "pipefail", "script.sh", "{}"],
    &["bash", "--norc", "script.sh", "{}"],
    &["sh", "-c", "cat \"$1\"", "sh", "{}"],
    &["sh", "-c", "cat \"$1\"", "sh", "in/{}"],
    &["sh", "-c", "cat \"$0\""],
    &["bash", "-ceu", "--", "cat \"$1\"", "bash", "{}"],
    &["bash", "-euo", "pipefail", "-c", "cat \"$1\"", "-", "{}"],
    &["sh", "-c", "wc \"$@\"", "sh", "-c", "{}"],
    &["fish", "-c", "cat $argv[1]", "{}"],
    &["env", "FOO=1", "cat", "{}"],
    &["env", "FOO={}", "sh", "-c", "cat \"$FOO\""],
    &["timeout", "5", "sh", "-c", "cat \"$1\"", "sh", "{}"],
    &["grep", "-c", "bash", "{}"],
];

#[test]
fn what_is_no_code_of_a_shell_is_allowed() {
    for words in HARMLESS {
        assert!(Template::parse(&command(words)).is_ok(), "{words:?}");
    }
}
