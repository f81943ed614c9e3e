//! The chart, as Helm renders it and as Kubernetes would read it; and the parts that can run without Kubernetes: nodes with the
//! files that it gives them, the command of a probe, and the command of a backup.
//!
//! Without Helm and Go these are skipped with a line that says so; with `QUORATE_REQUIRE_CLIENTS` in the environment they fail.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose as Purpose, KeyPair};
use rustix::process::Signal;
use serde_json::{Value, json};
use server::config::{ClientCertificates, PeerTls};

use super::super::required::is_installed;
use super::super::support::{Client, free_ports, quorate, signal, until, wait};
use super::super::tls::{Certs, Sealed};
use super::deploy;

/// Settings without which nothing is rendered.
const NEEDED: [&str; 2] = ["auth.password=its password", "auth.secret=0123456789abcdef"];

/// Everything that can be switched on.
const EVERYTHING: [&str; 12] = [
    "tls.enabled=true",
    "tls.existingSecret=certs",
    "tls.clientCertificates=required",
    "backup.enabled=true",
    "backup.to=s3://backups/shop",
    "backup.existingSecret=keys",
    "backup.env.AWS_REGION=eu-west-1",
    "backup.authoritySecret=store",
    "serviceMonitor.enabled=true",
    "serviceMonitor.labels.release=prometheus",
    "antiAffinity=hard",
    "persistence.storageClass=fast",
];

/// Helm, and the program that reads the rendered chart.
struct Helm {
    reader: &'static Path,
}

/// A rendered chart.
struct Objects(Vec<Value>);

impl Helm {
    /// Finds both, if they are installed.
    fn find() -> Option<Helm> {
        static READER: OnceLock<PathBuf> = OnceLock::new();
        // Its module also names Helm's version, so that both are built from the same packages.
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processes/deploy/manifests");
        let helm = format!("helm (in {folder}: go install tool)");
        let has = |what, name| is_installed(what, Command::new(name).arg("version"));
        if !has(&helm, "helm") || !has("go (package golang-go)", "go") {
            return None;
        }
        let reader = READER.get_or_init(|| {
            let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manifests");
            let mut build = Command::new("go");
            build.current_dir(folder).args(["build", "-o"]).arg(&binary).arg(".");
            assert!(build.status().unwrap().success(), "{build:?}");
            binary
        });
        Some(Helm { reader })
    }

    /// Runs Helm on the chart with these settings. Returns what it wrote, or why it refused.
    fn run(&self, words: &[&str], settings: &[&str]) -> Result<String, String> {
        let mut command = Command::new("helm");
        command.args(words).arg(deploy("helm/quorate"));
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        if output.status.success() { Ok(out) } else { Err(error + &out) }
    }

    /// Renders the chart with these settings, and reads each object strictly.
    fn render(&self, settings: &[&str]) -> Result<Objects, String> {
        self.render_with(&[], settings)
    }

    fn render_with(&self, flags: &[&str], settings: &[&str]) -> Result<Objects, String> {
        let words = [&["template", "shop", "--namespace", "store"], flags].concat();
        let manifests = self.run(&words, settings)?;
        let mut reader = Command::new(self.reader);
        let reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut reader = reader.spawn().unwrap();
        reader.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let output = reader.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "a Kubernetes would refuse what {settings:?} render: {error}");
        Ok(Objects(serde_json::from_slice(&output.stdout).unwrap()))
    }

    /// Renders it with the required settings and these.
    #[track_caller]
    fn rendered(&self, settings: &[&str]) -> Objects {
        self.render(&[&NEEDED[..], settings].concat()).unwrap()
    }

    /// The same for an upgrade of what is installed.
    #[track_caller]
    fn upgraded(&self, settings: &[&str]) -> Objects {
        self.render_with(&["--is-upgrade"], &[&NEEDED[..], settings].concat()).unwrap()
    }
}

impl Objects {
    #[track_caller]
    fn get(&self, kind: &str, name: &str) -> &Value {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.0.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// Kinds and names of all, sorted.
    fn names(&self) -> Vec<String> {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let name =
            |object: &Value| format!("{} {}", word(&object["kind"]), word(&object["metadata"]["name"]));
        let mut names: Vec<String> = self.0.iter().map(name).collect();
        names.sort();
        names
    }

    /// The description of the pods that run nodes.
    fn pods(&self) -> &Value {
        &self.get("StatefulSet", "shop-quorate")["spec"]["template"]
    }

    /// The description of the pod that removes nodes before there are fewer pods.
    fn removal(&self) -> &Value {
        &self.get("Job", "shop-quorate-removal")["spec"]["template"]
    }

    /// The description of the pods that make backups.
    fn backups(&self) -> &Value {
        &self.get("CronJob", "shop-quorate-backup")["spec"]["jobTemplate"]["spec"]["template"]
    }

    /// The configurations of all pods, by the pods' names.
    fn files(&self) -> BTreeMap<String, String> {
        let files = self.get("Secret", "shop-quorate")["stringData"].as_object().unwrap().iter();
        let files = files
            .filter_map(|(key, text)| Some((key.strip_suffix(".toml")?.into(), text.as_str()?.to_owned())));
        files.collect()
    }
}

/// The words of a container's command line, or of its command.
fn words(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

/// Where each volume of a pod's container is mounted, and what it is.
fn mounts(pod: &Value) -> BTreeMap<&str, &Value> {
    let spec = &pod["spec"];
    let volumes = spec["volumes"].as_array().unwrap();
    let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
    let volume = |name: &Value| volumes.iter().find(|volume| volume["name"] == *name).unwrap_or(&Value::Null);
    mounts.iter().map(|mount| (mount["mountPath"].as_str().unwrap(), volume(&mount["name"]))).collect()
}

#[test]
fn helm_finds_nothing_wrong_with_the_chart() {
    let Some(helm) = Helm::find() else { return };
    for settings in [&[][..], &[&NEEDED[..], &EVERYTHING].concat()] {
        helm.run(&["lint", "--strict"], settings).unwrap();
    }
}

#[test]
fn the_chart_makes_three_nodes_of_which_one_may_be_away() {
    let Some(helm) = Helm::find() else { return };
    let chart = helm.rendered(&[]);
    let names = [
        "PodDisruptionBudget shop-quorate",
        "Secret shop-quorate",
        "Service shop-quorate",
        "Service shop-quorate-nodes",
        "StatefulSet shop-quorate",
    ];
    assert_eq!(chart.names(), names);

    let nodes = &chart.get("StatefulSet", "shop-quorate")["spec"];
    assert_eq!(nodes["replicas"], 3);
    // The names by which the nodes know each other are those of this service, which has them before the nodes are
    // ready.
    assert_eq!(nodes["serviceName"], "shop-quorate-nodes");
    let service = &chart.get("Service", "shop-quorate-nodes")["spec"];
    assert_eq!((&service["clusterIP"], &service["publishNotReadyAddresses"]), (&json!("None"), &json!(true)));
    let budget = &chart.get("PodDisruptionBudget", "shop-quorate")["spec"];
    assert_eq!(budget["maxUnavailable"], 1);

    // Services, disruption budget and stateful set select the same pods.
    let labels = chart.pods()["metadata"]["labels"].as_object().unwrap();
    let clients = &chart.get("Service", "shop-quorate")["spec"];
    let chosen = [&nodes["selector"]["matchLabels"], &budget["selector"]["matchLabels"]];
    for selector in chosen.into_iter().chain([&service["selector"], &clients["selector"]]) {
        let selector = selector.as_object().unwrap();
        assert!(!selector.is_empty() && selector.iter().all(|(name, value)| labels[name] == *value));
    }
    // And each port exists in the pods.
    let ports = chart.pods()["spec"]["containers"][0]["ports"].as_array().unwrap();
    for port in service["ports"].as_array().unwrap().iter().chain(clients["ports"].as_array().unwrap()) {
        let there = ports.iter().find(|there| there["name"] == port["targetPort"]).unwrap();
        assert_eq!(there["containerPort"], port["port"]);
    }
}

#[test]
fn pods_may_only_run_and_write_to_their_volumes() {
    let Some(helm) = Helm::find() else { return };
    let chart = helm.upgraded(&EVERYTHING);
    for pod in [chart.pods(), chart.backups(), chart.removal()] {
        let spec = &pod["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        let user = json!({
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" }
        });
        assert_eq!(spec["securityContext"], user);
        let container = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] }
        });
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        let before = spec["initContainers"].as_array().into_iter().flatten();
        for each in before.chain([&spec["containers"][0]]) {
            assert_eq!(each["securityContext"], container);
            assert!(each["resources"]["limits"]["memory"].is_string());
        }
    }
}

#[test]
fn a_pod_has_its_own_configuration_and_its_own_disk() {
    let Some(helm) = Helm::find() else { return };
    let chart = helm.rendered(&[]);
    let mounted = mounts(chart.pods());
    assert_eq!(mounted.keys().copied().collect::<Vec<_>>(), ["/data", "/etc/quorate.toml"]);
    assert_eq!(mounted["/etc/quorate.toml"]["secret"]["secretName"], "shop-quorate");
    let container = &chart.pods()["spec"]["containers"][0];
    assert_eq!(words(&container["args"]), ["server", "--config", "/etc/quorate.toml"]);
    let of_pod = container["volumeMounts"].as_array().unwrap();
    let of_pod = of_pod.iter().find(|mount| mount["mountPath"] == "/etc/quorate.toml").unwrap();
    assert_eq!(of_pod["subPathExpr"], "$(POD_NAME).toml");
    assert_eq!(
        container["env"],
        json!([{ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }])
    );
    let claims = &chart.get("StatefulSet", "shop-quorate")["spec"]["volumeClaimTemplates"];
    assert_eq!(claims[0]["metadata"]["name"], "data");
    assert_eq!(claims[0]["spec"]["accessModes"], json!(["ReadWriteOnce"]));

    let own = helm.rendered(&["auth.existingSecret=mine"]);
    assert_eq!(mounts(own.pods())["/etc/quorate.toml"]["secret"]["secretName"], "mine");
    assert!(!own.names().contains(&"Secret shop-quorate".into()));
}

#[test]
fn the_program_accepts_each_configuration() {
    let Some(helm) = Helm::find() else { return };
    let tls = ["tls.enabled=true", "tls.existingSecret=certs", "tls.clientCertificates=wanted"];
    let strange = [
        r#"auth.password="quoted" <and> \\ \, ümlaut"#,
        "replicas=5",
        "initialReplicas=5",
        "cluster=the-main-one",
    ];
    let more = [
        "auth.operatorPassword=of the operator",
        "config=default_user = \"all\"",
        "tables=[[keyspace]]\nprefix = \"cache:\"\nreplication = \"leader-follower\"\nacks = 1",
    ];
    for (settings, count) in [(&[][..], 3), (&tls, 3), (&strange, 5), (&more, 3)] {
        let chart = helm.rendered(settings);
        let files = chart.files();
        assert_eq!(files.len(), count, "of {settings:?}");
        let of_first = server::Config::parse(&files["shop-quorate-0"]).unwrap();
        for (index, (pod, text)) in files.iter().enumerate() {
            let config = server::Config::parse(text).unwrap_or_else(|error| panic!("{error:#}: {text}"));
            assert_eq!((pod, usize::from(config.node)), (&format!("shop-quorate-{index}"), index + 1));
            // The name that a pod of the set has.
            let host = format!("{pod}.shop-quorate-nodes.store.svc.cluster.local");
            assert_eq!(config.own().unwrap().host, host);
            assert_eq!((&config.nodes, &config.cluster), (&of_first.nodes, &of_first.cluster));
            assert_eq!(config.keyspaces, of_first.keyspaces);
            assert_eq!(config.data, Path::new("/data"));
            // Probes and backups find the same password there.
            let password = &chart.get("Secret", "shop-quorate")["stringData"]["password"];
            assert_eq!(config.password.as_deref(), password.as_str());
            let operator = (settings == more).then_some("of the operator");
            assert_eq!(config.operator_password.as_deref(), operator);
            assert_eq!(config.tls.is_some(), settings == tls);
        }
    }
}

#[test]
fn missing_or_wrong_settings_are_refused_before_installation() {
    let Some(helm) = Helm::find() else { return };
    let cases: [(&[&str], &str); 16] = [
        (&["auth.password="], "auth.password is needed"),
        (&["auth.secret="], "auth.secret is needed"),
        (&["auth.secret=fifteen-letters"], "auth.secret is too short"),
        (&["replicas=0"], "replicas: at least 1"),
        (&["initialReplicas=0"], "initialReplicas: at least 1"),
        // A cluster that would never begin, and nodes that could not be added.
        (&["replicas=2"], "replicas is less than initialReplicas (3)"),
        (&["replicas=4"], "auth.operatorPassword is needed for more than initialReplicas (3) nodes"),
        (&["tls.enabled=true"], "tls.existingSecret is needed"),
        (&["tls.enabled=true", "auth.existingSecret=mine"], "tls.existingSecret is needed"),
        (
            &["tls.enabled=true", "tls.existingSecret=certs", "tls.peers=yes"],
            "tls.peers: off, wanted or required",
        ),
        (
            &["tls.enabled=true", "tls.existingSecret=certs", "tls.clientCertificates=always"],
            "tls.clientCertificates: off, wanted or required",
        ),
        (&["backup.enabled=true"], "backup.to is needed"),
        (&["backup.enabled=true", "backup.to=/backup/shop"], "backup.existingClaim is needed"),
        (&["backup.enabled=true", "backup.to=/data", "backup.existingClaim=disk"], "under /backup"),
        (&["backup.enabled=true", "backup.to=s3:/backups/shop"], "s3://BUCKET/PREFIX"),
        (&["backup.enabled=true", "backup.to=/backups", "backup.existingClaim=disk"], "under /backup"),
    ];
    for (settings, why) in cases {
        let Err(output) = helm.render(&[&NEEDED[..], settings].concat()) else {
            panic!("{settings:?} is taken")
        };
        assert!(output.contains(why), "{settings:?}: {output}");
    }
}

#[test]
fn a_node_is_ready_while_it_serves_and_lives_while_it_listens() {
    let Some(helm) = Helm::find() else { return };
    let health = |scheme: &str| json!({ "path": "/health", "port": "http", "scheme": scheme });
    let tls = ["tls.enabled=true", "tls.existingSecret=certs"];
    for (settings, scheme) in [(&[][..], "HTTP"), (&tls, "HTTPS")] {
        let container = &helm.rendered(settings).pods()["spec"]["containers"][0].clone();
        assert_eq!(container["readinessProbe"]["httpGet"], health(scheme));
        for probe in ["livenessProbe", "startupProbe"] {
            assert_eq!(container[probe]["tcpSocket"], json!({ "port": "http" }));
        }
    }
    // The probe of /health has no certificate.
    let settings = [&tls[..], &["tls.clientCertificates=required"]].concat();
    let container = &helm.rendered(&settings).pods()["spec"]["containers"][0].clone();
    let probe = &container["readinessProbe"];
    assert_eq!(
        words(&probe["exec"]["command"]),
        ["/quorate", "status", "--here", "--config", "/etc/quorate.toml"]
    );
    assert_eq!(probe["httpGet"], Value::Null);
}

#[test]
fn with_tls_no_port_is_plain_and_certificates_come_from_a_secret() {
    let Some(helm) = Helm::find() else { return };
    let shared = ["tls.enabled=true", "tls.existingSecret=certs", "serviceMonitor.enabled=true"];
    let per_node = [&shared[..], &["tls.perNode=true", "tls.clientCertificates=required"]].concat();
    for (settings, names) in [
        (&shared[..], ["tls.crt", "tls.key", "ca.crt"]),
        (&per_node, ["node-1.crt", "node-1.key", "authority.crt"]),
    ] {
        let chart = helm.rendered(settings);
        assert_eq!(mounts(chart.pods())["/etc/quorate-tls"]["secret"]["secretName"], "certs");
        let config = server::Config::parse(&chart.files()["shop-quorate-0"]).unwrap();
        let tls = config.tls.as_ref().unwrap();
        let files = [&tls.certificate, &tls.key, tls.authority.as_ref().unwrap()];
        assert_eq!(files.map(|file| file.strip_prefix("/etc/quorate-tls").unwrap()), names.map(Path::new));
        assert_eq!(tls.peers, PeerTls::Required);
        assert!(!config.has_plain_port(|tls| tls.client_port, |own| own.client_port));
        assert!(!config.has_plain_port(|tls| tls.http_port, |own| own.http_port));

        // Prometheus trusts the same authority, and presents a certificate if required.
        let endpoint = &chart.get("ServiceMonitor", "shop-quorate")["spec"]["endpoints"][0];
        assert_eq!(endpoint["scheme"], "https");
        let asked = &endpoint["tlsConfig"];
        assert_eq!(asked["serverName"], "shop-quorate.store.svc.cluster.local");
        assert_eq!(asked["ca"]["secret"], json!({ "name": "certs", "key": names[2] }));
        let shows = (tls.client_certificates == ClientCertificates::Required)
            .then(|| json!({ "name": "certs", "key": names[1] }));
        assert_eq!(asked.get("keySecret"), shows.as_ref());
    }
    // As YAML reads an unquoted `off`.
    for peers in ["tls.peers=off", "tls.peers=false"] {
        let chart = helm.rendered(&["tls.enabled=true", "tls.existingSecret=certs", peers]);
        let config = server::Config::parse(&chart.files()["shop-quorate-1"]).unwrap();
        assert_eq!(config.tls.unwrap().peers, PeerTls::Off);
    }
}

#[test]
fn scheduled_backups_run_in_pods_that_are_not_nodes() {
    let Some(helm) = Helm::find() else { return };
    let chart = helm.rendered(&EVERYTHING);
    let job = &chart.get("CronJob", "shop-quorate-backup")["spec"];
    assert_eq!((&job["schedule"], &job["concurrencyPolicy"]), (&json!("17 3 * * *"), &json!("Forbid")));
    let pod = chart.backups();
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["image"], chart.pods()["spec"]["containers"][0]["image"]);
    // Services and disruption budget do not select it as a node.
    let selector = &chart.get("Service", "shop-quorate")["spec"]["selector"];
    let chosen = selector.as_object().unwrap();
    assert!(chosen.iter().any(|(name, value)| pod["metadata"]["labels"][name] != *value));

    // Into an object store: keys from a Secret, the rest as given, and an authority of one's own.
    assert_eq!(container["envFrom"], json!([{ "secretRef": { "name": "keys" } }]));
    assert_eq!(
        container["env"],
        json!([
            { "name": "AWS_REGION", "value": "eu-west-1" },
            { "name": "AWS_CA_BUNDLE", "value": "/etc/quorate-store/ca.crt" }
        ])
    );
    let mounted = mounts(pod);
    let places: Vec<_> = mounted.keys().copied().collect();
    assert_eq!(places, ["/etc/quorate", "/etc/quorate-store", "/etc/quorate-tls"]);
    // It gets the password, but not the secret that the nodes share.
    assert_eq!(
        mounted["/etc/quorate"]["secret"]["items"],
        json!([{ "key": "password", "path": "password" }])
    );
    assert!(words(&container["args"]).contains(&"--to=s3://backups/shop"));

    // Into a volume.
    for (to, place) in [("backup.to=", "--to=/backup"), ("backup.to=/backup/shop", "--to=/backup/shop")] {
        let chart = helm.rendered(&["backup.enabled=true", "backup.existingClaim=disk", to]);
        let claim = &mounts(chart.backups())["/backup"]["persistentVolumeClaim"];
        assert_eq!(claim["claimName"], "disk");
        assert!(words(&chart.backups()["spec"]["containers"][0]["args"]).contains(&place));
    }
}

/// What a pod runs before its node.
fn joining(chart: &Objects) -> &Value {
    let containers = chart.pods()["spec"]["initContainers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    &containers[0]
}

/// A pod is restarted when its description has changed, and reads the file of its own name.
#[test]
fn another_number_of_pods_changes_nothing_of_those_that_stay() {
    let Some(helm) = Helm::find() else { return };
    let tls = ["tls.enabled=true", "tls.existingSecret=certs", "tls.perNode=true"];
    for more in [&[][..], &tls] {
        let of = |replicas: &str| {
            helm.upgraded(&[&["auth.operatorPassword=the operator's", replicas], more].concat())
        };
        let three = of("replicas=3");
        let (mut set, files) = (three.get("StatefulSet", "shop-quorate").clone(), three.files());
        for replicas in [1, 2, 4, 5, 12] {
            let other = of(&format!("replicas={replicas}"));
            set["spec"]["replicas"] = replicas.into();
            assert_eq!(*other.get("StatefulSet", "shop-quorate"), set);
            let others = other.files();
            assert_eq!(others.len(), replicas);
            let same = others.iter().filter(|(pod, _)| files.contains_key(*pod));
            assert!(
                same.clone().count() == replicas.min(3)
                    && same.clone().all(|(pod, text)| *text == files[pod])
            );
            for text in others.values() {
                let config = server::Config::parse(text).unwrap_or_else(|error| panic!("{error:#}: {text}"));
                let named = config.nodes.iter().map(|node| node.id).filter(|id| *id != config.node);
                assert_eq!(
                    named.collect::<Vec<_>>(),
                    (1..=3).filter(|id| *id != config.node).collect::<Vec<_>>()
                );
            }
        }
    }

    // A setting that all nodes read restarts them.
    let annotations = |settings: &[&str]| helm.rendered(settings).pods()["metadata"]["annotations"].clone();
    assert_ne!(annotations(&[]), annotations(&["config=masters = \"all\""]));
    assert_ne!(annotations(&[]), annotations(&["auth.operatorPassword=new"]));
    let operator = "auth.operatorPassword=new";
    assert_ne!(annotations(&[operator]), annotations(&[operator, "initialReplicas=2"]));
}

/// The job runs before an upgrade that lowers the number, with no other rights than a node has.
#[test]
fn nodes_are_removed_before_their_pods() {
    let Some(helm) = Helm::find() else { return };
    assert!(!helm.rendered(&[]).names().contains(&"Job shop-quorate-removal".into()), "there is nothing yet");
    let chart = helm.upgraded(&EVERYTHING);
    let annotations = &chart.get("Job", "shop-quorate-removal")["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/hook"], "pre-upgrade");
    let pod = chart.removal();
    let selector = &chart.get("Service", "shop-quorate")["spec"]["selector"];
    let chosen = selector.as_object().unwrap();
    assert!(chosen.iter().any(|(name, value)| pod["metadata"]["labels"][name] != *value));
    let mounted = mounts(pod);
    assert_eq!(mounted.keys().copied().collect::<Vec<_>>(), ["/etc/quorate", "/etc/quorate-tls"]);
    assert_eq!(
        mounted["/etc/quorate"]["secret"]["items"],
        json!([{ "key": "shop-quorate-0.toml", "path": "quorate.toml" }])
    );
}

/// Nodes with the files that the chart gives them. Each has an address of its own on this machine, so that all have the same
/// ports, as pods have.
struct Pods {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Pods {
    fn address(id: usize) -> String {
        format!("127.0.0.{id}")
    }

    /// Starts the nodes. `adapt` changes other settings that cannot be the same here.
    fn start(chart: &Objects, certs: &Certs, adapt: impl Fn(usize, String) -> String) -> Pods {
        let mut pods = Pods::none();
        for (index, text) in chart.files().into_values().enumerate() {
            let id = index + 1;
            let certs = certs.file("authority.crt").parent().unwrap().display().to_string();
            pods.write(id, adapt(id, text.replace("/etc/quorate-tls", &certs)));
            pods.spawn(id);
        }
        pods
    }

    fn none() -> Pods {
        Pods { folder: tempfile::tempdir().unwrap(), children: Vec::new() }
    }

    /// Gives a node its file, with addresses and folder of this machine.
    fn write(&self, id: usize, text: String) {
        let text = text.replace("\"0.0.0.0\"", &format!("{:?}", Pods::address(id)));
        fs::write(self.file(id), text.replace("\"/data\"", &format!("\"data-{id}\""))).unwrap();
    }

    /// Starts a node, whose file is there.
    fn spawn(&mut self, id: usize) -> &mut Child {
        let log = fs::File::options().create(true).append(true).open(self.log(id)).unwrap();
        let mut command = quorate();
        command.arg("server").arg("--config").arg(self.file(id)).stdout(Stdio::null()).stderr(log);
        self.children.push(command.spawn().unwrap());
        self.children.last_mut().unwrap()
    }

    /// A command of the chart, with the file of a node of this machine.
    fn command(&self, words: &Value, id: usize) -> Vec<String> {
        let file = self.file(id).display().to_string();
        let here = |word: &str| match word {
            "/etc/quorate.toml" | "/etc/quorate/quorate.toml" => file.clone(),
            other => other.to_owned(),
        };
        self::words(words).into_iter().map(here).collect()
    }

    fn file(&self, id: usize) -> PathBuf {
        self.folder.path().join(format!("quorate-{id}.toml"))
    }

    fn log(&self, id: usize) -> PathBuf {
        self.folder.path().join(format!("log-{id}"))
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for id in 1..=self.children.len() {
                let log = fs::read_to_string(self.log(id)).unwrap_or_default();
                eprintln!("the log of node {id}:\n{log}");
            }
        }
    }
}

/// Settings for ports that are free here. Also returns the port for clients, which is followed by those for HTTP and
/// nodes.
fn ports() -> (u16, [String; 3]) {
    let base = free_ports(3);
    let settings = [("client", base), ("http", base + 1), ("peer", base + 2)];
    (base, settings.map(|(name, port)| format!("ports.{name}={port}")))
}

/// Runs a command of the program. Returns its exit code, and its output.
fn run(words: &[String]) -> (i32, String) {
    let output = quorate().args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn nodes_with_certificates_of_their_own_serve_and_are_backed_up_by_the_charts_commands() {
    let Some(helm) = Helm::find() else { return };
    let certs = Certs::new(&["--node", "127.0.0.1", "--node", "127.0.0.2", "--node", "127.0.0.3"]);
    let (base, ports) = ports();
    let settings = [
        "tls.enabled=true",
        "tls.existingSecret=certs",
        "tls.perNode=true",
        "tls.clientCertificates=required",
        "backup.enabled=true",
        "backup.existingClaim=disk",
        "backup.to=/backup/shop",
    ];
    let ports = ports.each_ref().map(String::as_str);
    let chart = helm.rendered(&[&settings[..], &ports].concat());
    // No cluster here resolves the pods' names.
    let addressed = |text: &str| {
        (1..=3).fold(text.to_owned(), |text, id| {
            let name = format!("shop-quorate-{}.shop-quorate-nodes.store.svc.cluster.local", id - 1);
            text.replace(&name, &Pods::address(id))
        })
    };
    let pods = Pods::start(&chart, &certs, |_, text| addressed(&text));

    let probe = &chart.pods()["spec"]["containers"][0]["readinessProbe"]["exec"]["command"];
    for id in 1..=3 {
        let file = pods.file(id).display().to_string();
        let probe: Vec<String> =
            words(probe)[1..].iter().map(|word| word.replace("/etc/quorate.toml", &file)).collect();
        until("each node is ready", || run(&probe) == (0, format!("node {id} serves\n")));
    }
    let mut client = Sealed::connect(base, &certs, Some("node-2"));
    assert_eq!(client.ask("AUTH \"its password\""), "+OK");
    assert_eq!(client.ask("SET greeting hello"), "+OK");

    let password = pods.folder.path().join("password");
    let stored = &chart.get("Secret", "shop-quorate")["stringData"]["password"];
    fs::write(&password, stored.as_str().unwrap()).unwrap();
    let place = pods.folder.path().join("shop").display().to_string();
    let command = &chart.backups()["spec"]["containers"][0]["args"];
    let here = |word: &&str| {
        word.replace("/backup/shop", &place)
            .replace("shop-quorate.store.svc.cluster.local", &Pods::address(2))
            .replace("/etc/quorate/password", &password.display().to_string())
            .replace("/etc/quorate-tls", &certs.file("authority.crt").parent().unwrap().display().to_string())
    };
    let backup: Vec<String> = words(command).iter().map(here).collect();
    let (code, output) = run(&backup);
    assert!(code == 0 && output.contains("1 shard copied (1 key)"), "{output}");
    let (code, output) = run(&["backup".into(), "--verify".into(), place]);
    assert!(code == 0 && output.contains(": whole"), "{output}");
}

/// The pods of a set that is raised to five, lowered to three and raised again, each with what the chart has it run.
#[test]
fn new_pods_join_the_cluster_and_leave_it_by_the_charts_commands() {
    let Some(helm) = Helm::find() else { return };
    let (base, ports) = ports();
    let of = |replicas: &str| {
        let ports = ports.each_ref().map(String::as_str);
        helm.upgraded(&[&["auth.operatorPassword=the operator's", replicas], &ports[..]].concat())
    };
    let (three, five) = (of("replicas=3"), of("replicas=5"));
    let mut pods = Pods::none();
    for (index, text) in five.files().into_values().enumerate() {
        let addressed = (1..=5).fold(text, |text, id| {
            let name = format!("shop-quorate-{}.shop-quorate-nodes.store.svc.cluster.local", id - 1);
            text.replace(&name, &Pods::address(id))
        });
        pods.write(index + 1, addressed);
    }
    let join = |pods: &Pods, id: usize| run(&pods.command(&joining(&five)["args"], id));
    let has = |pods: &Pods, nodes: &[u64]| {
        let file = pods.file(1).display().to_string();
        let (_, text) = run(&["node", "list", "--json", "--config", &file].map(str::to_owned));
        let Ok(Value::Array(list)) = serde_json::from_str(&text) else { return false };
        list.iter().filter_map(|node| node["node"].as_u64()).eq(nodes.iter().copied())
    };
    let is_ready = |id: usize| {
        let address = format!("{}:{}", Pods::address(id), base + 1);
        let Ok(mut stream) = TcpStream::connect(&address) else { return false };
        let request = format!("GET /health?all HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let mut text = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && std::io::Read::read_to_string(&mut stream, &mut text).is_ok()
            && text.starts_with("HTTP/1.1 200")
    };

    // A new cluster: no node waits for another one.
    for id in 1..=3 {
        let (code, output) = join(&pods, id);
        assert!(code == 0 && output.contains(&format!("node {id} starts as it is")), "{output}");
    }
    (1..=3).for_each(|id| _ = pods.spawn(id));
    until("three nodes serve", || (1..=3).all(is_ready));
    let mut client = Client::connect(base);
    assert_eq!(client.ask("AUTH \"its password\""), "+OK");
    assert_eq!(client.ask("SET greeting hello"), "+OK");
    // A member that is restarted.
    let (code, output) = join(&pods, 2);
    assert_eq!((code, output.as_str()), (0, "node 2 is a member of the cluster\n"));
    // Nothing is above three.
    let removal = pods.command(&three.removal()["spec"]["containers"][0]["args"], 1);
    assert_eq!(run(&removal), (0, "the cluster has no node above 3\n".to_owned()));

    // Raised: both new pods begin at once.
    let added: Vec<(i32, String)> = std::thread::scope(|scope| {
        let pods = &pods;
        let both = [4, 5].map(|id| scope.spawn(move || join(pods, id)));
        both.map(|it| it.join().unwrap()).into()
    });
    for (id, (code, output)) in (4..).zip(added) {
        assert!(code == 0 && output.contains(&format!("node {id} is added")), "{output}");
    }
    [4, 5].into_iter().for_each(|id| _ = pods.spawn(id));
    until("five nodes serve", || (1..=5).all(is_ready) && has(&pods, &[1, 2, 3, 4, 5]));
    let holds = |pods: &Pods, nodes: &[u64]| {
        let file = pods.file(1).display().to_string();
        let (_, text) = run(&["status", "--json", "--config", &file].map(str::to_owned));
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        let members = status["keyspaces"][0]["shards"][0]["members"].as_array();
        members.is_some_and(|members| nodes.iter().all(|node| members.iter().any(|it| it == node)))
    };
    until("the new nodes hold the keys", || holds(&pods, &[4, 5]));

    // Lowered: the nodes leave before their pods go, and a container that is restarted does not bring its node back.
    let (code, output) = run(&removal);
    assert!(code == 0 && output.ends_with("nodes 5, 4 have left the cluster\n"), "{output}");
    assert!(has(&pods, &[1, 2, 3]));
    for index in [3, 4] {
        assert_eq!(wait(&mut pods.children[index]), 0);
    }
    let again = pods.spawn(5);
    let id = again.id();
    until("it is turned away", || {
        fs::read_to_string(pods.log(1)).unwrap().contains("it claims to be node 5, which is not a member")
    });
    assert!(has(&pods, &[1, 2, 3]) && !is_ready(5));
    signal(id, Signal::TERM);
    wait(pods.children.last_mut().unwrap());

    // Raised again, with the folder that the removed node has left: it joins as a new node.
    let (code, output) = join(&pods, 4);
    assert!(code == 0 && output.contains("node 4 is added"), "{output}");
    pods.spawn(4);
    until("node 4 serves again", || is_ready(4) && has(&pods, &[1, 2, 3, 4]) && holds(&pods, &[4]));
    let mut client = Client::of(TcpStream::connect((Pods::address(4).as_str(), base)).unwrap());
    assert_eq!(client.ask("AUTH \"its password\""), "+OK");
    assert_eq!(client.ask("GET greeting"), "$5");
}

/// What a new node needs is said, and members need none of it.
#[test]
fn without_the_operators_password_no_pod_joins() {
    let Some(helm) = Helm::find() else { return };
    let (base, ports) = ports();
    let ports = ports.each_ref().map(String::as_str);
    let chart = helm.rendered(
        &[&["initialReplicas=1", "replicas=1", "config=default_user = \"data\""], &ports[..]].concat(),
    );
    let file = &chart.files()["shop-quorate-0"];
    let own = file.replace("shop-quorate-0.shop-quorate-nodes.store.svc.cluster.local", "127.0.0.1");
    let other = format!(
        "\n[[nodes]]\nid = 2\nhost = \"127.0.0.2\"\nclient_port = {base}\nhttp_port = {}\npeer_port = {}\n",
        base + 1,
        base + 2
    );
    let mut pods = Pods::none();
    pods.write(1, own.clone());
    pods.write(2, own.replace("node = 1", "node = 2") + &other);
    let join = |pods: &Pods, id: usize| run(&pods.command(&joining(&chart)["args"], id));
    let (code, output) = join(&pods, 1);
    assert!(code == 0 && output.contains("begins a cluster of its own"), "{output}");
    pods.spawn(1);
    until("the node listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, base)).is_ok());
    let (code, output) = join(&pods, 2);
    assert!(code == 1 && output.contains("needs operator_password"), "{output}");
}

/// A certificate as an issuer in Kubernetes makes it for all pods: with a wildcard name.
#[test]
fn one_wildcard_certificate_for_all_nodes_works_too() {
    let Some(helm) = Helm::find() else { return };
    let certs = Certs::new(&["--client", "someone"]);
    let hosts =
        ["*.shop-quorate-nodes.store.svc.cluster.local", "shop-quorate.store.svc.cluster.local", "127.0.0.1"];
    let mut params = CertificateParams::new(hosts.map(str::to_owned)).unwrap();
    params.distinguished_name.push(DnType::CommonName, "quorate");
    params.extended_key_usages = vec![Purpose::ServerAuth, Purpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &certs.authority()).unwrap();
    fs::write(certs.file("tls.crt"), certificate.pem()).unwrap();
    fs::write(certs.file("tls.key"), key.serialize_pem()).unwrap();
    fs::copy(certs.file("authority.crt"), certs.file("ca.crt")).unwrap();

    let (base, ports) = ports();
    let ports = ports.each_ref().map(String::as_str);
    let chart = helm.rendered(&[&["tls.enabled=true", "tls.existingSecret=certs"], &ports[..]].concat());
    // The names stay, since the certificate is checked against them. The nodes get the addresses for them.
    let _pods = Pods::start(&chart, &certs, |id, text| {
        // Of two nodes the one with the higher number dials.
        let others = (1..id).map(|other| {
            let host = Pods::address(other);
            format!("[[dial]]\nnode = {other}\nhost = \"{host}\"\nport = {}\n", base + 2)
        });
        text + &others.collect::<String>()
    });

    // The same request as the probe's, with an address as the host name.
    until("the node is ready", || {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, base + 1)).is_err() {
            return false;
        }
        let mut http = Sealed::connect(base + 1, &certs, None);
        http.send(format!(
            "GET /health HTTP/1.1\r\nHost: 10.0.0.9:{}\r\nConnection: close\r\n\r\n",
            base + 1
        ));
        http.try_line().is_ok_and(|line| line == "HTTP/1.1 200 OK")
    });
    let mut client = Sealed::connect(base, &certs, None);
    assert_eq!(client.ask("AUTH \"its password\""), "+OK");
    assert_eq!(client.ask("SET greeting hello"), "+OK");
}
