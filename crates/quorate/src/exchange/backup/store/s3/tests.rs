//! A small object store in this process, which fails now and then, so that requests are tested where no real store exists. Real
//! ones are tested with the program, in `tests/clients/s3.rs`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::super::{NewFile, Store};
use super::{Address, Bucket};

/// A store.
#[derive(Default)]
struct Objects {
    /// Each object with its version.
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    parts: BTreeMap<u64, Vec<u8>>,
    version: u64,
    requests: u64,
    /// One of this many requests is refused, and one loses its connection after it was carried out. 0: none.
    fails_each: u64,
    /// It does not support conditions.
    is_simple: bool,
    /// How long ago all objects were written, in seconds.
    age: u64,
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

type Shared = Arc<Mutex<Objects>>;

/// Starts a store, and returns it with a bucket in it.
fn start(objects: Objects) -> (Shared, Bucket) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let objects = Arc::new(Mutex::new(objects));
    let shared = Arc::clone(&objects);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || serve(client.unwrap(), &shared));
        }
    });
    (objects, bucket(port))
}

fn bucket(port: u16) -> Bucket {
    let address = Address::find("bucket/of/shop", |name| {
        Some(match name {
            "AWS_ENDPOINT_URL" => format!("http://127.0.0.1:{port}"),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => "key".to_owned(),
            _ => return None,
        })
    });
    Bucket::at(address.unwrap()).unwrap()
}

fn port_of(bucket: &Bucket) -> u16 {
    bucket.remote.address.host.rsplit(':').next().unwrap().parse().unwrap()
}

/// Serves one connection, of one request.
fn serve(mut client: TcpStream, shared: &Shared) {
    let Some(request) = request(&client) else { return };
    let mut objects = shared.lock().unwrap();
    objects.requests += 1;
    let fails = |remainder| objects.fails_each > 0 && objects.requests % objects.fails_each == remainder;
    let (is_refused, is_lost) = (fails(0), fails(1));
    let (status, headers, mut body) = match is_refused {
        true => (503, String::new(), b"<Error><Code>SlowDown</Code></Error>".to_vec()),
        false => objects.answer(&request),
    };
    let length = body.len();
    if request.method == "HEAD" {
        body.clear();
    }
    if is_lost {
        body.truncate(length / 2);
        if body.is_empty() {
            return;
        }
    }
    let _ = write!(
        client,
        "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = client.write_all(&body);
}

fn request(client: &TcpStream) -> Option<Request> {
    let mut from = BufReader::new(client);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" if lines.is_empty() => return None,
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let (method, rest) = lines[0].split_once(' ')?;
    let url = url::Url::parse(&format!("http://store{}", rest.split(' ').next()?)).ok()?;
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    let query = url.query_pairs().into_owned().collect();
    let key = url.path().strip_prefix("/bucket/")?.to_owned();
    Some(Request { method: method.to_owned(), key, query, headers, body })
}

impl Objects {
    fn put(&mut self, key: &str, body: Vec<u8>) -> u64 {
        self.version += 1;
        self.objects.insert(key.to_owned(), (body, self.version));
        self.version
    }

    /// The status, more headers, and the body.
    fn answer(&mut self, request: &Request) -> (u16, String, Vec<u8>) {
        let Request { method, key, query, headers, body } = request;
        let none = || (404, String::new(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec());
        let tagged = |version: u64| format!("ETag: \"{version}\"\r\n");
        let is_other = |version: Option<u64>| {
            headers.get("if-match").is_some_and(|etag| version.is_none_or(|it| *etag != format!("\"{it}\"")))
        };
        let version = self.objects.get(key).map(|(_, version)| *version);
        let is_there = headers.contains_key("if-none-match") && version.is_some();
        if !self.is_simple && (is_other(version) || is_there) {
            return (412, String::new(), b"<Error><Code>PreconditionFailed</Code></Error>".to_vec());
        }
        match method.as_str() {
            "GET" if query.contains_key("list-type") => (200, String::new(), self.list(query)),
            "GET" | "HEAD" => {
                let Some((content, version)) = self.objects.get(key) else { return none() };
                let from: Option<usize> = headers
                    .get("range")
                    .map(|range| range["bytes=".len()..].trim_end_matches('-').parse().unwrap());
                let at =
                    |seconds: u64| format!("Fri, 27 Nov 2026 09:{:02}:{:02} GMT", seconds / 60, seconds % 60);
                let (now, written) = (at(1800), at(1800 - self.age));
                let dates = format!("Date: {now}\r\nLast-Modified: {written}\r\n");
                let status = if from.is_some() { 206 } else { 200 };
                (status, tagged(*version) + &dates, content[from.unwrap_or(0)..].to_vec())
            }
            "PUT" if query.contains_key("partNumber") => {
                let number = query["partNumber"].parse().unwrap();
                self.parts.insert(number, body.clone());
                (200, tagged(number), Vec::new())
            }
            "PUT" => (200, tagged(self.put(key, body.clone())), Vec::new()),
            "POST" if query.contains_key("uploads") => {
                let named = "<InitiateMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                             <UploadId>1</UploadId></InitiateMultipartUploadResult>";
                (200, String::new(), named.as_bytes().to_vec())
            }
            "POST" if self.parts.is_empty() => {
                (404, String::new(), b"<Error><Code>NoSuchUpload</Code></Error>".to_vec())
            }
            "POST" => {
                let whole = std::mem::take(&mut self.parts).into_values().flatten().collect();
                (200, tagged(self.put(key, whole)), Vec::new())
            }
            "DELETE" if query.contains_key("uploadId") => {
                self.parts.clear();
                (204, String::new(), Vec::new())
            }
            "DELETE" => match self.objects.remove(key) {
                Some(_) => (204, String::new(), Vec::new()),
                None => none(),
            },
            other => panic!("{other}"),
        }
    }

    /// A page of two names.
    fn list(&self, query: &BTreeMap<String, String>) -> Vec<u8> {
        let after = query.get("continuation-token").cloned().unwrap_or_default();
        let names = self.objects.keys().filter(|key| key.starts_with(&query["prefix"]) && **key > after);
        let names: Vec<&String> = names.take(3).collect();
        let contents = names.iter().take(2).map(|key| format!("<Contents><Key>{key}</Key></Contents>"));
        let next = match names.len() {
            3 => format!("<NextContinuationToken>{}</NextContinuationToken>", names[1]),
            _ => String::new(),
        };
        let (contents, is_truncated) = (contents.collect::<String>(), names.len() == 3);
        let head = "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
        format!("{head}<IsTruncated>{is_truncated}</IsTruncated>{contents}{next}</ListBucketResult>")
            .into_bytes()
    }
}

fn write(mut file: Box<dyn NewFile>, bytes: &[u8]) {
    bytes.chunks(1 << 20).for_each(|some| file.write_all(some).unwrap());
    file.end().unwrap();
}

fn read(store: &dyn Store, path: &str) -> Vec<u8> {
    let (length, mut file) = store.read(path).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(length, bytes.len() as u64);
    bytes
}

#[test]
fn files_are_objects_and_failed_requests_are_repeated() {
    for fails_each in [0, 5] {
        let (objects, bucket) = start(Objects { fails_each, ..Objects::default() });
        bucket.lock().unwrap();
        let large: Vec<u8> = (0..33 << 20).map(|at: u32| (at ^ (at >> 11)) as u8).collect();
        write(bucket.create("b/large").unwrap(), &large);
        for path in ["a/2", "a/1", "c/1"] {
            write(bucket.create(path).unwrap(), path.as_bytes());
        }
        drop(bucket.create("c/2").unwrap());
        let mut unfinished = bucket.create("c/3").unwrap();
        large.chunks(1 << 20).for_each(|some| unfinished.write_all(some).unwrap());
        drop(unfinished);
        // Objects outside folders, or deeper ones, are not ours.
        objects.lock().unwrap().put("of/shop/x/y/z", Vec::new());
        objects.lock().unwrap().put("of/shopping/1", Vec::new());
        assert_eq!(bucket.list().unwrap(), ["a/1", "a/2", "b/large", "c/1"]);
        assert_eq!(read(&bucket, "a/2"), b"a/2");
        assert!(read(&bucket, "b/large") == large, "fails each {fails_each}");
        bucket.remove("a/1").unwrap();
        bucket.remove("a/1").unwrap();
        bucket.lock().unwrap();
        assert_eq!(bucket.list().unwrap(), ["a/2", "b/large", "c/1"]);
        assert!(
            bucket.read("a/1").err().unwrap().to_string().ends_with("s3://bucket/of/shop/a/1 is not there")
        );
        bucket.rest();
        assert_eq!(objects.lock().unwrap().objects.len(), 5, "the lock is gone");
    }
}

#[test]
fn the_lock_belongs_to_one_backup_until_it_expires() {
    for is_simple in [false, true] {
        let (objects, one) = start(Objects { is_simple, ..Objects::default() });
        let two = bucket(port_of(&one));
        one.lock().unwrap();
        let why = two.lock().unwrap_err().to_string();
        assert!(why.contains("another backup into s3://bucket/of/shop is under way"), "{why}");
        objects.lock().unwrap().age = 61;
        two.lock().unwrap();
        objects.lock().unwrap().age = 0;
        let why = one.lock().unwrap_err().to_string();
        assert!(why.contains("has begun, since"), "{why}");
        // It gets that error once, and then it is a backup like any other.
        assert!(one.lock().unwrap_err().to_string().contains("is under way"));
        two.rest();
        one.lock().unwrap();
        one.lock().unwrap();
        // Conditions are used if the store supports them.
        write(one.create("a/1").unwrap(), b"1");
        write(one.create("a/1").unwrap(), b"1");
        let mut other = one.create("a/1").unwrap();
        other.write_all(b"2").unwrap();
        assert_eq!(other.end().is_ok(), is_simple);
    }
}
