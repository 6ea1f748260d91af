use std::ffi::OsStr;
use std::io::ErrorKind;

use rstest::rstest;

use super::program::{find_in, find_program};
use crate::processor::Broken;

#[rstest]
#[case::by_name("sh", "/nowhere:/bin", None)]
#[case::by_path("/bin/sh", "", None)]
#[case::missing("no-such-program", "/bin:/usr/bin", Some(ErrorKind::NotFound))]
#[case::missing_path("/no/such/program", "/bin", Some(ErrorKind::NotFound))]
#[case::elsewhere("sh", "/nowhere", Some(ErrorKind::NotFound))]
#[case::directory("/bin/", "/bin", Some(ErrorKind::PermissionDenied))]
#[case::no_program("/etc/passwd", "/bin", Some(ErrorKind::PermissionDenied))]
#[case::no_program_by_name("passwd", "/etc", Some(ErrorKind::PermissionDenied))]
#[case::another_behind("passwd", "/etc:/usr/bin", None)]
fn a_program_is_found_as_the_system_finds_it(
    #[case] program: &str,
    #[case] path: &str,
    #[case] expected: Option<ErrorKind>,
) {
    let found = find_in(OsStr::new(program), OsStr::new(path));
    assert_eq!(found.err().map(|error| error.kind()), expected);
}

#[test]
fn a_missing_program_has_the_same_error_as_when_started() {
    let broken = find_program(OsStr::new("no-such-program")).unwrap_err();
    assert!(
        matches!(&broken, Broken::NotExecutable(why) if why.contains("`no-such-program` not found")),
        "{broken:?}"
    );
}
