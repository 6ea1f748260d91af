use std::ffi::OsStr;

use gossip_contracts::connector::{Connector, ConnectorError, MemoryConnector};
use rstest::rstest;

use super::registry::{RegisterError, SCHEME_LEN_MAX, SourceRegistry};
use super::source::{Source, SourceError, SourceOptions};

fn family(_name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
    Ok(Box::new(MemoryConnector::try_new([(*b"a", *b"1")]).unwrap()))
}

fn parse(registry: &SourceRegistry, text: &str) -> Result<Source, SourceError> {
    registry.parse(OsStr::new(text), SourceOptions::NONE)
}

#[test]
fn registered_family_is_parsed_opened_and_restored_by_its_text() {
    let mut registry = SourceRegistry::new();
    registry.register("letters", family).unwrap();
    let source = parse(&registry, "letters:all:of them").unwrap();
    assert!(matches!(&source, Source::Registered(it) if it.name() == "all:of them"));
    assert!(source.open().is_ok());
    assert_eq!(registry.parse(&source.text(), SourceOptions::NONE).as_ref(), Ok(&source));
    assert_eq!(registry.restore(&source.text(), SourceOptions::NONE).as_ref(), Ok(&source));
    let other = parse(&registry, "letters:others").unwrap();
    assert_ne!(other, source);
    assert_ne!(other.canonical(), source.canonical(), "one run for two sources");
}

#[test]
fn built_in_families_stay_and_other_tables_know_nothing_of_a_registration() {
    let mut registry = SourceRegistry::new();
    registry.register("letters", family).unwrap();
    assert!(matches!(parse(&registry, "range:0..3"), Ok(Source::Integers(_))));
    assert_eq!(parse(&SourceRegistry::new(), "letters:all"), Err(SourceError::NotFound));
    assert_eq!(parse(&registry, "letters:"), Err(SourceError::Empty));
    let options = SourceOptions { ignore: true, ..SourceOptions::NONE };
    let misplaced = Err(SourceError::OptionMisplaced { option: "ignore" });
    assert_eq!(registry.parse(OsStr::new("letters:all"), options), misplaced);
}

#[rstest]
#[case("tree", RegisterError::Taken)]
#[case("range", RegisterError::Taken)]
#[case("", RegisterError::Malformed)]
#[case("c", RegisterError::Malformed)]
#[case("Upper", RegisterError::Malformed)]
#[case("9p", RegisterError::Malformed)]
#[case("a/b", RegisterError::Malformed)]
#[case("a:b", RegisterError::Malformed)]
fn scheme_that_is_taken_or_looks_like_a_path_is_refused(
    #[case] scheme: &str,
    #[case] refused: RegisterError,
) {
    assert_eq!(SourceRegistry::new().register(scheme, family), Err(refused));
}

#[test]
fn scheme_registers_once_and_has_a_longest_length() {
    let mut registry = SourceRegistry::new();
    registry.register("s3", family).unwrap();
    assert_eq!(registry.register("s3", family), Err(RegisterError::Taken));
    assert_eq!(registry.register(&"a".repeat(SCHEME_LEN_MAX), family), Ok(()));
    let longer = "a".repeat(SCHEME_LEN_MAX + 1);
    assert_eq!(registry.register(&longer, family), Err(RegisterError::Malformed));
}
