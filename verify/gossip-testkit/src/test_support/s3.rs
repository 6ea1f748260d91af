//! An S3 server: moto, which checks signatures, in an environment of its own below `target`.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::test_support::TestDirectory;
use crate::test_support::server::{Process, free_ports};

/// How long a server may take to start. It takes a second on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a starting server is asked.
const POLL: Duration = Duration::from_millis(50);
/// How often other ports are tried when ours is taken between finding and using it.
const MAX_STARTS: usize = 5;

/// Requests that need no signature: those of [`USER`].
const UNSIGNED: &str = "4";

/// Creates a user with a key, who may do everything, and a bucket.
const USER: &str = "
import boto3, json, sys
url = sys.argv[1]
new = dict(endpoint_url=url, region_name='us-east-1', aws_access_key_id='x',
           aws_secret_access_key='x')
iam = boto3.client('iam', **new)
iam.create_user(UserName='u')
key = iam.create_access_key(UserName='u')['AccessKey']
allowed = {'Version': '2012-10-17',
           'Statement': [{'Effect': 'Allow', 'Action': '*', 'Resource': '*'}]}
iam.put_user_policy(UserName='u', PolicyName='p', PolicyDocument=json.dumps(allowed))
boto3.client('s3', **new).create_bucket(Bucket='bucket')
print(key['AccessKeyId'], key['SecretAccessKey'])
";

/// Stores the objects of standard input.
const PUT: &str = "
import boto3, json, sys
s3 = boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1',
                  aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3])
for line in sys.stdin:
    key, body = json.loads(line)
    s3.put_object(Bucket='bucket', Key=key, Body=body)
";

/// A server with a bucket named `bucket`, which runs until its value is dropped.
#[derive(Debug)]
pub struct S3Server {
    port: u16,
    access_key: (String, String),
    _process: Process,
    _directory: TestDirectory,
}

impl S3Server {
    /// A running server with an empty bucket.
    pub fn start() -> Self {
        let directory = TestDirectory::new("s3");
        for _ in 0..MAX_STARTS {
            let [port] = free_ports();
            let log = File::create(directory.path().join("moto.log"));
            let log = log.expect("our own directory is writable");
            let copy = log.try_clone().expect("a file that was just opened can be shared");
            let mut command = Command::new(program("moto_server"));
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
            command.env("INITIAL_NO_AUTH_ACTION_COUNT", UNSIGNED);
            command.stdin(Stdio::null()).stdout(copy).stderr(log);
            let server = match command.spawn() {
                Ok(server) => server,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    panic!("there is no S3 server below target: run `cargo xtask setup`");
                }
                Err(error) => panic!("{command:?}: {error}"),
            };
            let mut process = Process::watched(server, |pid| format!("kill -KILL {pid}"));
            if is_ready(port, &mut process) {
                let made = python(USER, &[&url(port)], "");
                let (id, secret) = made.trim().split_once(' ').expect("the script prints both");
                let access_key = (id.to_owned(), secret.to_owned());
                return Self { port, access_key, _process: process, _directory: directory };
            }
        }
        panic!("moto did not start on any of {MAX_STARTS} ports");
    }

    /// Its URL.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The id and the secret of a key that may do everything.
    pub fn access_key(&self) -> (&str, &str) {
        (&self.access_key.0, &self.access_key.1)
    }

    /// Stores objects, given as lines of JSON: `["key", "body"]`.
    pub fn put(&self, lines: &str) {
        let (id, secret) = self.access_key();
        python(PUT, &[&self.url(), id, secret], lines);
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A program that `cargo xtask setup` has installed below `target`.
fn program(name: &str) -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join("target/moto/bin").join(name)
}

/// Polls until the server accepts connections; `false` if it has ended instead.
fn is_ready(port: u16, process: &mut Process) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if process.has_ended() {
            return false;
        }
        assert!(Instant::now() < deadline, "moto is not ready");
        thread::sleep(POLL);
    }
    true
}

/// Runs a script with the client library of AWS, and returns its output.
fn python(script: &str, args: &[&str], input: &str) -> String {
    let mut command = Command::new(program("python"));
    command.args(["-c", script]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the environment of the server has Python");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    stdin.write_all(input.as_bytes()).expect("the script reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("it was started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
