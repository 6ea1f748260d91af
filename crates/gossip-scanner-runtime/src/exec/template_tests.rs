use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rstest::rstest;

use super::{ItemText, Template, TemplateError};
use crate::connectors::{Source, SourceOptions};

fn command(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn filled(words: &[&str], keys: &[&[u8]]) -> Vec<OsString> {
    let items: Vec<_> = keys.iter().map(|text| ItemText { text, number: 0 }).collect();
    Template::parse(&command(words)).unwrap().arguments(&items).unwrap()
}

#[rstest]
#[case("dir/sub/name.tar.gz", ["name.tar.gz", "dir/sub", "dir/sub/name.tar"])]
#[case("name", ["name", ".", "name"])]
#[case("/name.x", ["name.x", "/", "/name"])]
#[case("d.x/.hidden", [".hidden", "d.x", "d.x/.hidden"])]
#[case("dir/", ["", "dir", "dir/"])]
fn parts_of_paths_are_as_parallel_names_them(#[case] text: &str, #[case] expected: [&str; 3]) {
    assert_eq!(filled(&["echo", "{/}", "{//}", "{.}"], &[text.as_bytes()]), expected);
    let inside = filled(&["echo", "a{/}b"], &[text.as_bytes()]);
    assert_eq!(inside, [OsString::from(format!("a{}b", expected[0]))]);
}

#[test]
fn numbers_are_those_of_integers_from_one() {
    let source = Source::parse("range:5..9".as_ref(), SourceOptions::NONE).unwrap();
    let template = Template::parse_for(&command(&["echo", "{#}", "{}"]), &source).unwrap();
    let key = crate::connectors::row_key(7);
    let item = ItemText { text: b"7", number: template.number_of(&key) };
    assert_eq!(template.arguments(&[item]).unwrap(), ["3", "7"]);
    let words = command(&["echo", "{#}"]);
    assert_eq!(Template::parse(&words), Err(TemplateError::NoNumbers));
}

/// The row itself has no zero byte, and starting a process with one would fail.
#[test]
fn a_column_with_a_zero_byte_fails_its_item() {
    let directory = crate::connectors::test_support::TempDir::new();
    let path = directory.path().join("rows.jsonl");
    std::fs::write(&path, "{\"url\":\"a\"}\n").unwrap();
    let source = Source::parse(path.as_os_str(), SourceOptions::NONE).unwrap();
    let template = Template::parse_for(&command(&["curl", "{url}"]), &source).unwrap();
    let row = |text: &'static [u8]| ItemText { text, number: 0 };
    assert_eq!(template.arguments(&[row(br#"{"url":"b"}"#)]).unwrap(), ["b"]);
    let complaint = template.arguments(&[row(br#"{"url":"a\u0000b"}"#)]).unwrap_err();
    assert!(complaint.contains("zero byte"), "{complaint}");
}

#[test]
fn columns_are_filled_from_rows() {
    let directory = crate::connectors::test_support::TempDir::new();
    let path = directory.path().join("table.csv");
    std::fs::write(&path, "url,\"the size\",n\nx,2,3\n").unwrap();
    let source = Source::parse(path.as_os_str(), SourceOptions::NONE).unwrap();
    let parse = |words: &[&str]| Template::parse_for(&command(words), &source);
    let template = parse(&["curl", "{url}", "--n={n}", "${n}"]).unwrap();
    let row = ItemText { text: b"\"https://a,b\",7,x", number: 0 };
    let expected = ["https://a,b", "--n=x", "${n}"];
    assert_eq!(template.arguments(&[row]).unwrap(), expected);
    let short = ItemText { text: b"only", number: 0 };
    assert!(template.arguments(&[short]).unwrap_err().contains("column 3"));
    assert!(matches!(parse(&["curl", "{urll}"]), Err(TemplateError::NoColumn { .. })));
    // In a script a column would run as code, as the item would.
    assert_eq!(parse(&["sh", "-c", "echo {url}"]), Err(TemplateError::PlaceInScript));
    // Without columns a name in braces is text.
    let plain = filled(&["awk", "{print}"], &[b"f"]);
    assert_eq!(plain, ["{print}", "f"]);
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
#[case::base_in_script(&["sh", "-c", "rm {/}"], TemplateError::PlaceInScript)]
#[case::number(&["echo", "{#}"], TemplateError::NoNumbers)]
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
fn arguments_that_are_no_shell_code_are_allowed() {
    for words in HARMLESS {
        assert!(Template::parse(&command(words)).is_ok(), "{words:?}");
    }
}
