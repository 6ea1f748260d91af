//! The places of a password, in their order.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gossip_testkit::test_support::TestDirectory;

use crate::config::PostgresConfig;
use crate::password::password;

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_file_of_the_url_comes_before_the_environment_and_that_before_libpqs_file() {
    let directory = TestDirectory::new("password");
    let (own, libpq) = (directory.path().join("own"), directory.path().join("pgpass"));
    write(&own, "from the file\nsecond line", 0o600);
    write(&libpq, "*:*:*:*:from libpq", 0o600);
    let mut config = PostgresConfig::new("localhost", 5432, "user", "work");
    assert_eq!(password(&config).unwrap(), None);
    config.environment.password_file = Some(libpq);
    assert_eq!(password(&config).unwrap().as_deref(), Some("from libpq"));
    config.environment.password = Some("from the environment".to_owned());
    assert_eq!(password(&config).unwrap().as_deref(), Some("from the environment"));
    config.password_file = Some(own);
    assert_eq!(password(&config).unwrap().as_deref(), Some("from the file"));
}

#[test]
fn a_file_that_others_may_read_is_refused_and_a_missing_one_of_libpq_is_none() {
    let directory = TestDirectory::new("password-mode");
    let path = directory.path().join("pw");
    let mut config = PostgresConfig::new("localhost", 5432, "user", "work");
    config.environment.password_file = Some(path.clone());
    assert_eq!(password(&config).unwrap(), None);
    write(&path, "*:*:*:*:canary", 0o640);
    let error = password(&config).unwrap_err();
    assert!(!error.to_string().contains("canary"), "{error}");
    config.password_file = Some(path);
    assert!(password(&config).is_err());
    config.password_file = Some(directory.path().join("missing"));
    assert!(password(&config).is_err());
}

#[test]
fn the_first_matching_line_of_libpqs_file_decides() {
    let directory = TestDirectory::new("password-lines");
    let path = directory.path().join("pgpass");
    let text = "# *:*:*:*:comment\nother:*:*:*:host\n*:1:*:*:port\n*:*:other:*:database\n\
                *:*:*:other:user\nshort:line\nlocalhost:5432:wo\\:rk:user:a\\:b:c\\\\\n*:*:*:*:last";
    write(&path, text, 0o600);
    let mut config = PostgresConfig::new("localhost", 5432, "user", "wo:rk");
    config.environment.password_file = Some(path);
    assert_eq!(password(&config).unwrap().as_deref(), Some("a:b:c\\"));
    config.database = "x".to_owned();
    assert_eq!(password(&config).unwrap().as_deref(), Some("last"));
}
