//! Traces: the spans that a collector gets for commands that several nodes carry out, and commands without a
//! collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::support::{Client, Server, configuration, free_ports, until};

const NODES: u16 = 3;

/// A collector that accepts spans as OTLP over HTTP.
struct Collector {
    port: u16,
    taken: Arc<Mutex<Vec<Taken>>>,
}

/// A span, and the node that sent it.
#[derive(Clone, Debug)]
struct Taken {
    node: u64,
    span: Value,
}

impl Taken {
    fn text(&self, name: &str) -> &str {
        self.span[name].as_str().unwrap_or_default()
    }

    fn time(&self, name: &str) -> u128 {
        self.text(name).parse().unwrap()
    }

    fn attribute(&self, key: &str) -> Option<&Value> {
        let attributes = self.span["attributes"].as_array().unwrap();
        attributes.iter().find(|it| it["key"] == key).map(|it| &it["value"])
    }

    fn is_within(&self, outer: &Taken) -> bool {
        self.node == outer.node
            && self.time("startTimeUnixNano") >= outer.time("startTimeUnixNano")
            && self.time("endTimeUnixNano") <= outer.time("endTimeUnixNano")
    }
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), kept) = (stream, Arc::clone(&kept)) else { return };
                std::thread::spawn(move || while take_request(&stream, &kept).is_some() {});
            }
        });
        Collector { port, taken }
    }

    /// The spans with this name that have been taken.
    fn spans(&self, name: &str) -> Vec<Taken> {
        let taken = self.taken.lock().unwrap();
        taken.iter().filter(|it| it.text("name") == name).cloned().collect()
    }

    /// The parent of a span.
    fn parent(&self, part: &Taken) -> Option<Taken> {
        let taken = self.taken.lock().unwrap();
        let parent = taken.iter().find(|it| it.text("spanId") == part.text("parentSpanId")).cloned()?;
        assert_eq!(parent.text("traceId"), part.text("traceId"));
        Some(parent)
    }
}

/// Reads one request from a connection, and answers it. `None`: there are no more.
fn take_request(mut stream: &TcpStream, kept: &Mutex<Vec<Taken>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_lowercase());
    }
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/json".to_owned()));
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).unwrap();
    for resource in body["resourceSpans"].as_array().unwrap() {
        let attributes = resource["resource"]["attributes"].as_array().unwrap();
        let node = attributes.iter().find(|it| it["key"] == "quorate.node").unwrap();
        let node = node["value"]["intValue"].as_str().unwrap().parse().unwrap();
        for scope in resource["scopeSpans"].as_array().unwrap() {
            let spans = scope["spans"].as_array().unwrap().iter().cloned();
            kept.lock().unwrap().extend(spans.map(|span| Taken { node, span }));
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").ok()
}

/// Starts a cluster whose nodes trace this share of their clients' commands.
fn cluster(collector: u16, samples: [f64; NODES as usize]) -> Vec<Server> {
    let base = free_ports(3 * NODES);
    let start = |(id, sample): (u16, f64)| {
        let traces = format!("[traces]\nendpoint = \"http://127.0.0.1:{collector}\"\nsample = {sample:?}\n");
        let keyspace = "[[keyspace]]\nprefix = \"p:\"\nshards = 4\n";
        let config = configuration(base, NODES, "", &format!("{traces}{keyspace}"));
        Server::start_node(id, NODES, base, &config.replace("node = 1\n", &format!("node = {id}\n")))
    };
    let nodes: Vec<Server> = (1..=NODES).zip(samples).map(start).collect();
    for node in &nodes {
        until("the node is ready", || node.http("GET /health HTTP/1.1", "").0 == 200);
    }
    nodes
}

#[test]
fn a_command_that_another_node_carries_out_is_one_trace_with_spans_of_both() {
    let collector = Collector::start();
    let nodes = cluster(collector.port, [1.0; 3]);
    for node in &nodes {
        let mut client = node.client();
        for number in 0..20 {
            assert_eq!(client.ask(&format!("SET key:{number} v")), "+OK");
        }
    }
    // Two of the three nodes do not lead.
    until("the traces of all commands are there", || {
        collector.spans("SET").len() == 60 && collector.spans("serve").len() == 40
    });
    until("their parts are there", || {
        collector.spans("replicate").len() == 60 && collector.spans("forward").len() == 40
    });
    for command in collector.spans("SET") {
        assert_eq!((&command.span["kind"], command.text("parentSpanId")), (&Value::from(2), ""));
        assert_eq!(command.attribute("db.operation.name").unwrap()["stringValue"], "SET");
    }
    for serve in collector.spans("serve") {
        let forward = collector.parent(&serve).unwrap();
        assert_eq!((forward.text("name"), &forward.span["kind"]), ("forward", &Value::from(3)));
        let leader = serve.node.to_string();
        assert_eq!(forward.attribute("quorate.peer").unwrap()["intValue"], leader.as_str());
        let command = collector.parent(&forward).unwrap();
        assert!(command.text("name") == "SET" && forward.is_within(&command) && command.node != serve.node);
    }
    for replicate in collector.spans("replicate") {
        let outer = collector.parent(&replicate).unwrap();
        assert!(["SET", "serve"].contains(&outer.text("name")) && replicate.is_within(&outer));
        assert!(replicate.attribute("quorate.group").is_some());
    }
    assert!(nodes[0].metric("quorate_spans_sent_total") > 0);
    assert_eq!(nodes[0].metric("quorate_spans_dropped_total"), 0);
}

#[test]
fn errors_and_commands_on_several_groups_are_seen_in_traces() {
    let collector = Collector::start();
    let nodes = cluster(collector.port, [1.0, 0.0, 0.0]);
    let mut client = nodes[0].client();
    assert_eq!(client.ask("SET text v"), "+OK");
    assert!(client.ask("INCR text").starts_with("-ERR value is not an integer"));
    assert_eq!(client.ask("DBSIZE"), ":1");
    until("the traces are there", || {
        collector.spans("INCR").len() == 1 && collector.spans("DBSIZE").len() == 1
    });
    let failed = &collector.spans("INCR")[0];
    assert_eq!(failed.span["status"]["code"], 2);
    assert!(failed.span["status"]["message"].as_str().unwrap().contains("not an integer"));
    let parts = collector.spans("part");
    assert_eq!(parts.len(), 5, "the default keyspace, and four shards of the other one");
    for part in parts {
        assert_eq!(collector.parent(&part).unwrap().text("name"), "DBSIZE");
    }
    // A node that traces none of its own clients' commands takes part in the traces of others.
    let mut other = nodes[1].client();
    assert_eq!(other.ask("GET text"), "$1");
    assert!(collector.spans("GET").is_empty());
}

#[test]
fn without_a_collector_commands_are_served_and_spans_are_counted_as_dropped() {
    let port = free_ports(1);
    let traces = format!("[traces]\nendpoint = \"http://127.0.0.1:{port}\"\nsample = 1.0\n");
    let mut server = Server::start("", &traces);
    let mut client: Client = server.client();
    for number in 0..100 {
        assert_eq!(client.ask(&format!("SET {number} v")), "+OK");
    }
    until("spans are dropped", || server.metric("quorate_spans_dropped_total") >= 200);
    assert_eq!(server.metric("quorate_spans_sent_total"), 0);
    // The line is written after they are counted.
    until("it is logged", || server.log().contains("takes no spans"));
    assert_eq!(server.log().matches("takes no spans").count(), 1);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_collector_with_tls_is_refused_at_the_start() {
    let base = free_ports(3);
    let traces = "[traces]\nendpoint = \"https://collector:4318\"\n";
    let config = server::config::Config::parse(&configuration(base, 1, "", traces));
    let error = format!("{:#}", config.err().unwrap());
    assert!(error.contains("does not begin with http://"), "{error}");
}

/// An HTTP client may name the span that its request belongs to (`traceparent`). That decides whether it is traced,
/// whatever the configured share.
#[test]
fn a_request_over_http_is_part_of_the_trace_that_it_names() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let collector = Collector::start();
    let nodes = cluster(collector.port, [0.0, 1.0, 0.0]);
    let put = |node: &Server, key: &str, flags: &str| {
        let head = format!("POST /put HTTP/1.1\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-{flags}");
        let body = format!("{{\"key\": \"{key}\", \"value\": \"v\"}}");
        assert_eq!(node.http(&head, &body).0, 200);
    };
    // It is not traced, though the node traces all requests without a decision.
    put(&nodes[1], "p:1", "00");
    for node in &nodes {
        put(node, "p:2", "01");
    }
    until("each has a trace, and two came to the leader from elsewhere", || {
        collector.spans("SET").len() == 3 && collector.spans("serve").len() == 2
    });
    for command in collector.spans("SET") {
        assert_eq!((command.text("traceId"), command.text("parentSpanId")), (TRACE, "00f067aa0ba902b7"));
        assert_eq!(command.span["kind"], 2);
    }
    for serve in collector.spans("serve") {
        assert_eq!(serve.text("traceId"), TRACE);
    }
    let mut client = nodes[1].client();
    client.ask("GET p:2");
    until("what comes next is drawn again", || collector.spans("GET").len() == 1);
    assert_ne!(collector.spans("GET")[0].text("traceId"), TRACE);
}
