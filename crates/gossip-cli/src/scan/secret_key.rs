//! The key under which secrets are hashed: in a file of the user's, made on first use.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gossip::DEFAULT_TENANT;
use gossip::identity::TenantId;
use gossip::secrets::TenantSecretKey;

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::store;

/// Bytes of a key; in a file each is two digits.
const KEY_LEN: usize = 32;
/// The longest file that is read: the digits and some white space.
const FILE_LEN_MAX: u64 = 256;
/// Bits of the mode that let others than the owner read or write.
const OTHERS: u32 = 0o077;

/// Reads the key of a command; the default file is made if it is missing.
pub(crate) fn load(
    global: &Global,
    named: Option<&Path>,
    console: &Console,
) -> Result<TenantSecretKey, Failure> {
    if let Some(path) = named {
        return read(path);
    }
    let path = default_path(global, store::tenant(global)?)?;
    match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(&path).map_err(|error| {
                let what = format!("cannot make the secret key {}", path.display());
                Failure::new(Code::Usage, what)
                    .why(error)
                    .next("name a file: --secret-key-file FILE")
            })?;
            let path = path.display();
            console.note(&format!(
                "made the key under which secrets are hashed: {path}. Other machines need a copy"
            ));
        }
        Ok(_) | Err(_) => {}
    }
    read(&path)
}

/// Returns where the key of a tenant is.
fn default_path(global: &Global, tenant: TenantId) -> Result<PathBuf, Failure> {
    let directory =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = directory("XDG_CONFIG_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".config")))
        .ok_or_else(|| {
            Failure::new(Code::Usage, "no place for the secret key: HOME is not set")
                .next("name a file: --secret-key-file FILE")
        })?;
    let name = if global.tenant == DEFAULT_TENANT {
        "secret-key".to_owned()
    } else {
        // The name of a tenant need not be one of a file.
        let id: String = tenant.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("secret-key-{id}")
    };
    Ok(config.join("gossip").join(name))
}

/// Makes a key. If another process makes it at the same time, one of the two is kept.
fn create(path: &Path) -> io::Result<()> {
    let directory = path.parent().expect("the path has two names at least");
    store::create_private(directory)?;
    let mut key = [0; KEY_LEN];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    // Written whole before it has its name: another process never reads a part.
    let made = directory.join(format!(".secret-key-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
    let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
    let linked = written.and_then(|()| std::fs::hard_link(&made, path));
    std::fs::remove_file(&made)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

fn read(path: &Path) -> Result<TenantSecretKey, Failure> {
    let shown = path.display();
    let unusable =
        |why: &str| Failure::new(Code::Usage, format!("unusable secret key: {shown}")).why(why);
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        let mode = file.metadata()?.mode();
        file.take(FILE_LEN_MAX).read_to_string(&mut text).map(|_| mode)
    });
    let mode = read.map_err(|error| unusable(&error.to_string()))?;
    if mode & OTHERS != 0 {
        return Err(
            unusable("other users may read or change it").next(format!("chmod 600 {shown}"))
        );
    }
    let digits = text.trim().as_bytes();
    let mut key = [0; KEY_LEN];
    if digits.len() != 2 * KEY_LEN {
        return Err(unusable("it does not hold 64 hexadecimal digits"));
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let value = digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok());
        *byte = value.ok_or_else(|| unusable("it does not hold 64 hexadecimal digits"))?;
    }
    Ok(TenantSecretKey::from_bytes(key))
}
