use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{Connector, ConnectorError, ItemBody, OpenError, PageItem};

use super::*;
use crate::connectors::test_support::*;
use crate::connectors::{KeyFormat, Source, SourceError, SourceOptions};

/// A repository of its own for one test.
struct Repository {
    directory: TempDir,
    format: &'static str,
}

impl Repository {
    fn new() -> Self {
        Self::of_format("sha1")
    }

    fn of_format(format: &'static str) -> Self {
        let repository = Self { directory: TempDir::new(), format };
        repository.git(&["init", "--quiet", &format!("--object-format={format}")]);
        repository
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs git without the settings of the machine; returns its output.
    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=Test", "-c", "user.email=test@example.org"]);
        command.args(["-c", "commit.gpgsign=false", "-C"]).arg(self.path()).args(args);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        // Set in a hook of git, which may run these tests.
        command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
        // The same for each, so that the order of commits is that of history.
        command.env("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn write(&self, path: &str, content: &[u8]) {
        self.directory.write(OsStr::new(path), content);
    }

    /// Commits every file there is; returns the commit.
    fn commit(&self) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty-message", "--message="]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn oid_of(&self, content: &[u8]) -> Vec<u8> {
        self.directory.write(OsStr::new(".git/content"), content);
        let digits = self.git(&["hash-object", ".git/content"]);
        KeyFormat::Hex.parse(digits.as_bytes()).unwrap()
    }

    fn open(&self) -> GitBlobs {
        GitBlobs::open(&repository_of(self.path()).unwrap()).unwrap()
    }
}

fn content_of(blobs: &GitBlobs, key: &[u8]) -> Result<Vec<u8>, OpenError> {
    let (mut scratch, mut content) = (Vec::new(), Vec::new());
    let mut body = blobs.open(PageItem::new(key), &mut scratch)?;
    std::io::copy(&mut body, &mut content).unwrap();
    Ok(content)
}

struct History {
    repository: Repository,
    contents: Vec<Vec<u8>>,
}

impl History {
    fn new(format: &'static str) -> Self {
        let repository = Repository::of_format(format);
        let mut contents: Vec<Vec<u8>> = Vec::new();
        for number in 0..12 {
            let content = format!("content {number}\n").repeat(number).into_bytes();
            repository.write(&format!("dir-{}/file {number}", number % 3), &content);
            contents.push(content);
            if number % 4 == 3 {
                repository.commit();
            }
        }
        // More than an inline body.
        let large = b"0123456789abcdef".repeat(100_000);
        repository.write("large", &large);
        contents.push(large);
        repository.commit();
        Self { repository, contents }
    }
}

impl Fixture for History {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.repository.open())
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let item =
            |content: &Vec<u8>| ExpectedItem::new(self.repository.oid_of(content), &**content);
        self.contents.iter().map(item).collect()
    }
}

#[test]
fn blobs_keep_the_contract_of_connectors() {
    assert_conforms(&mut History::new("sha1"));
}

#[test]
fn blobs_of_a_sha256_repository_keep_the_contract() {
    let mut history = History::new("sha256");
    assert_eq!(history.repository.format, "sha256");
    assert_conforms(&mut history);
}

#[test]
fn every_cursor_gives_the_suffix() {
    assert_every_cursor_gives_the_suffix(&History::new("sha1").repository.open());
}

#[test]
fn a_blob_is_one_item_with_its_first_commit_and_path() {
    let repository = Repository::new();
    repository.write("b/second name", b"the content\n");
    let first = repository.commit();
    repository.write("a/first name", b"the content\n");
    repository.write("later", b"other\n");
    let second = repository.commit();
    let blobs = repository.open();
    assert_eq!(all_keys(&blobs).len(), 2);
    let origin = blobs.origin(&repository.oid_of(b"the content\n")).unwrap();
    assert_eq!((origin.path, origin.revision), (&b"b/second name"[..], &*first));
    let origin = blobs.origin(&repository.oid_of(b"other\n")).unwrap();
    assert_eq!((origin.path, origin.revision), (&b"later"[..], &*second));
    assert_eq!(blobs.origin(b"no id"), None);
}

#[test]
fn contents_that_no_branch_has_any_more_are_listed_from_the_reflog() {
    let repository = Repository::new();
    repository.write("kept", b"kept\n");
    let kept = repository.commit();
    repository.write("leaked", b"removed by a forced push\n");
    repository.commit();
    repository.git(&["reset", "--quiet", "--hard", &kept]);
    let blobs = repository.open();
    let leaked = repository.oid_of(b"removed by a forced push\n");
    assert_eq!(content_of(&blobs, &leaked).unwrap(), b"removed by a forced push\n");
    assert_eq!(blobs.origin(&leaked).unwrap().path, b"leaked");
}

#[test]
fn a_stash_and_a_tagged_blob_are_listed() {
    let repository = Repository::new();
    repository.write("file", b"one\n");
    repository.commit();
    repository.write("file", b"stashed\n");
    repository.git(&["stash", "--quiet"]);
    repository.write("outside", b"only tagged\n");
    let tagged = repository.git(&["hash-object", "-w", "outside"]);
    repository.git(&["tag", "blob-tag", &tagged]);
    let blobs = repository.open();
    for content in [&b"stashed\n"[..], b"only tagged\n"] {
        assert_eq!(content_of(&blobs, &repository.oid_of(content)).unwrap(), content);
    }
}

#[test]
fn an_empty_repository_has_no_items() {
    let repository = Repository::new();
    let blobs = repository.open();
    assert_eq!(all_keys(&blobs), Vec::<Vec<u8>>::new());
    assert_eq!(content_of(&blobs, b"key"), Err(OpenError::Vanished));
    let mut sample = Page::default();
    blobs.sample_keys(ShardSpecRef::new(b"", b"", b""), &mut sample).unwrap();
    assert_eq!((sample.len(), sample.is_exhausted()), (0, true));
}

#[test]
fn a_missing_object_is_an_item_that_cannot_be_read() {
    let repository = Repository::new();
    repository.write("file", b"lost\n");
    repository.write("other", b"kept\n");
    repository.commit();
    let lost = repository.oid_of(b"lost\n");
    let digits = table::hex(&lost);
    let object = repository.path().join(format!(".git/objects/{}/{}", &digits[..2], &digits[2..]));
    std::fs::remove_file(object).unwrap();
    let blobs = repository.open();
    assert_eq!(all_keys(&blobs).len(), 2);
    assert_eq!(content_of(&blobs, &lost), Err(OpenError::Malformed));
    assert_eq!(content_of(&blobs, &repository.oid_of(b"kept\n")).unwrap(), b"kept\n");
}

#[test]
fn a_damaged_history_is_an_error_and_not_a_shorter_listing() {
    let repository = Repository::new();
    repository.write("file", b"one\n");
    let commit = repository.commit();
    let tree = repository.git(&["rev-parse", "HEAD^{tree}"]);
    let path = |id: &str| repository.path().join(format!(".git/objects/{}/{}", &id[..2], &id[2..]));
    let object = path(&tree);
    let mut permissions = std::fs::metadata(&object).unwrap().permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test")]
    permissions.set_readonly(false);
    std::fs::set_permissions(&object, permissions).unwrap();
    std::fs::write(&object, b"damaged").unwrap();
    let opened = GitBlobs::open(&repository_of(repository.path()).unwrap());
    assert!(matches!(opened, Err(ConnectorError::Malformed { .. })), "{commit}");
}

#[test]
fn a_body_that_is_not_read_to_its_end_does_not_disturb_the_next() {
    let history = History::new("sha1");
    let blobs = history.repository.open();
    let large = history.repository.oid_of(history.contents.last().unwrap());
    let small = history.repository.oid_of(&history.contents[3]);
    for skipped in [1, 1_000_000, 1_599_999] {
        let (mut scratch, mut read) = (Vec::new(), vec![0; skipped]);
        let mut body = blobs.open(PageItem::new(&large), &mut scratch).unwrap();
        assert!(matches!(body, ItemBody::Reader(_)));
        std::io::Read::read_exact(&mut body, &mut read).unwrap();
        drop(body);
        assert_eq!(content_of(&blobs, &small).unwrap(), history.contents[3]);
    }
}

#[test]
fn items_can_be_open_at_the_same_time() {
    let history = History::new("sha1");
    let blobs = history.repository.open();
    let large = history.repository.oid_of(history.contents.last().unwrap());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut one = blobs.open(PageItem::new(&large), &mut first).unwrap();
    let mut other = blobs.open(PageItem::new(&large), &mut second).unwrap();
    let (mut read_one, mut read_other) = (Vec::new(), Vec::new());
    std::io::copy(&mut other, &mut read_other).unwrap();
    std::io::copy(&mut one, &mut read_one).unwrap();
    assert_eq!(read_one, *history.contents.last().unwrap());
    assert_eq!(read_one, read_other);
}

#[test]
fn a_source_is_the_same_from_every_work_tree_and_directory() {
    let repository = Repository::new();
    repository.write("dir/file", b"one\n");
    repository.commit();
    let linked = TempDir::new();
    let linked_path = linked.path().join("linked");
    repository.git(&["worktree", "add", "--quiet", linked_path.to_str().unwrap()]);
    let parse = |path: &Path| {
        let text = format!("git:{}", path.display());
        Source::parse(OsStr::new(&text), SourceOptions::NONE)
    };
    let source = parse(repository.path()).unwrap();
    assert_eq!(parse(&repository.path().join("dir")).unwrap(), source);
    assert_eq!(parse(&linked_path).unwrap(), source);
    assert_eq!(Source::restore(&source.text(), SourceOptions::NONE).unwrap(), source);
    assert_eq!(parse(linked.path()), Err(SourceError::NotARepository));
    assert_eq!(parse(Path::new("/nonexistent")), Err(SourceError::NotFound));
    let options = SourceOptions { ignore: true, ..SourceOptions::NONE };
    let text = format!("git:{}", repository.path().display());
    let misplaced = Source::parse(OsStr::new(&text), options);
    assert_eq!(misplaced, Err(SourceError::OptionMisplaced { option: "ignore" }));
}
