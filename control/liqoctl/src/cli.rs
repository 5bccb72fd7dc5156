//! The command line.

use crate::commands::{
    authenticate, completion, force, info, install, network, offload, peer, test, uninstall,
    unoffload, unpeer, version,
};
use crate::global::Global;
use crate::kinds;
use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

/// Installs, connects and inspects clusters.
///
/// Example: liqoctl install --kubeconfig rome.yaml --cluster-id rome
#[derive(Parser, Debug)]
#[command(name = "liqoctl", version, disable_version_flag = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Installs Liqo in a cluster, or upgrades it.
    ///
    /// Example: liqoctl install --kubeconfig rome.yaml --cluster-id rome --cluster-labels region=A
    ///
    /// Example: liqoctl install --kubeconfig rome.yaml --patch-daemonsets
    #[command(visible_alias = "upgrade")]
    Install(Box<install::Options>),
    /// Removes Liqo from a cluster.
    ///
    /// Example: liqoctl uninstall --kubeconfig rome.yaml --purge --skip-confirm
    Uninstall(uninstall::Options),
    /// Peers with a provider: the local cluster, its consumer, gets resources of the remote one.
    ///
    /// Example: liqoctl peer --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --cpu 4 --memory 8Gi --pods 30
    Peer(Box<peer::Options>),
    /// Ends the peering with a provider.
    ///
    /// Example: liqoctl unpeer --kubeconfig rome.yaml --remote-kubeconfig milan.yaml
    Unpeer(unpeer::Options),
    /// Ends a peering whose other cluster will never respond again.
    Force(force::Options),
    /// Obtains the credentials of a provider for the local cluster, its consumer.
    ///
    /// Example: liqoctl authenticate --kubeconfig rome.yaml --remote-kubeconfig milan.yaml
    #[command(visible_alias = "auth")]
    Authenticate(authenticate::Options),
    /// Removes the credentials of a provider.
    ///
    /// Example: liqoctl unauthenticate --kubeconfig rome.yaml --remote-kubeconfig milan.yaml
    #[command(visible_alias = "unauth")]
    Unauthenticate(authenticate::Unauthenticate),
    /// Connects the networks of two clusters.
    Network(network::Options),
    /// Extends namespaces to other clusters.
    Offload(offload::Options),
    /// Ends the extension of namespaces to other clusters.
    Unoffload(unoffload::Options),
    #[command(flatten)]
    Object(kinds::ObjectCommand),
    /// Shows the state of an installation, its peers and its virtual nodes.
    ///
    /// Example: liqoctl info --get local.clusterID
    Info(info::Options),
    /// Tests the connections between peers.
    Test(test::Options),
    /// Prints the versions of this program and of the installation.
    ///
    /// Example: liqoctl version --client
    Version(version::Options),
    /// Prints a completion script for a shell.
    ///
    /// Example: source <(liqoctl completion bash)
    Completion(completion::Options),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error that names the cause and, where one is known, the remedy.
    pub(crate) async fn run(self) -> Result<()> {
        let global = &self.global;
        match self.command {
            Command::Install(options) => install::run(global, *options).await,
            Command::Uninstall(options) => uninstall::run(global, options).await,
            Command::Peer(options) => peer::run(global, *options).await,
            Command::Unpeer(options) => unpeer::run(global, &options).await,
            Command::Force(options) => force::run(global, &options).await,
            Command::Authenticate(options) => authenticate::run(global, &options).await,
            Command::Unauthenticate(options) => {
                authenticate::unauthenticate(global, &options).await
            }
            Command::Network(options) => network::run(global, options).await,
            Command::Offload(options) => offload::run(global, &options).await,
            Command::Unoffload(options) => unoffload::run(global, &options).await,
            Command::Object(command) => command.run(global).await,
            Command::Info(options) => info::run(global, options).await,
            Command::Test(options) => test::run(global, options).await,
            Command::Version(options) => version::run(global, &options).await,
            Command::Completion(options) => completion::run(&options, &mut Self::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_are_accepted_after_the_command() {
        let cli = Cli::try_parse_from([
            "liqoctl",
            "install",
            "k3s",
            "--kubeconfig",
            "rome.yaml",
            "--cluster-labels",
            "region=A,provider=Azure",
            "--timeout",
            "5m",
        ])
        .unwrap();

        assert_eq!(cli.global.timeout, Some(Duration::from_secs(300)));
        assert_eq!(cli.global.kubeconfig, Some("rome.yaml".into()));
    }

    /// The lines `Aliases:` of upstream's help pages, of release 1.2.0. This program has no `move volume`.
    const ALIASES: &str = "
        authenticate: auth
        cordon resourceslice: resourceslices, rs
        cordon tenant: tenants
        create configuration: config, configurations
        create gatewayclient: gatewayclients, client, clients, gwc
        create gatewayserver: gatewayservers, server, servers, gws
        create publickey: publickeys, publickeies
        create resourceslice: rs, resourceslices
        create virtualnode: vn
        delete configuration: configurations
        delete gatewayclient: gatewayclients, client, clients, gwc
        delete gatewayserver: gatewayservers, server, servers, gws
        delete publickey: publickeys, publickeies
        delete virtualnode: vn
        generate configuration: config, configurations
        generate identity: identities
        generate publickey: publickeys, publickeies
        generate tenant: tenants
        get kubeconfig: kc
        install: upgrade
        offload namespace: ns, namespaces
        test network: net
        unauthenticate: unauth
        uncordon resourceslice: resourceslices, rs
        uncordon tenant: tenants
        unoffload namespace: ns, namespaces";

    #[test]
    fn upstreams_aliases_are_accepted() {
        let root = Cli::command();
        for line in ALIASES.lines().filter(|line| !line.is_empty()) {
            let (path, aliases) = line.trim().split_once(": ").unwrap();
            let mut command = &root;
            for word in path.split(' ') {
                let found = command.get_subcommands().find(|it| it.get_name() == word);
                command = found.unwrap_or_else(|| panic!("{path}"));
            }
            let ours: Vec<&str> = command.get_all_aliases().collect();
            for alias in aliases.split(", ") {
                assert!(ours.contains(&alias), "{path}: {alias} is missing");
            }
        }
    }

    #[test]
    fn upstreams_examples_of_offloading_are_accepted() {
        for arguments in [
            &["offload", "namespace", "foo"][..],
            &["offload", "namespaces", "foo", "bar"],
            &["offload", "ns", "--ns-selector", "foo=bar"],
            &[
                "offload",
                "namespace",
                "foo",
                "--pod-offloading-strategy",
                "Remote",
                "--namespace-mapping-strategy",
                "EnforceSameName",
                "--selector",
                "region in (europe,us-west), !staging",
                "--timeout",
                "20s",
            ],
            &["offload", "namespace", "foo", "--output", "yaml"],
            &["unoffload", "namespace", "foo", "bar", "--skip-confirm"],
            &["unoffload", "namespaces", "--ns-selector", "foo=bar"],
        ] {
            let words = ["liqoctl"].iter().chain(arguments);
            assert!(Cli::try_parse_from(words).is_ok(), "{arguments:?}");
        }
    }

    /// Kubernetes has a kind of the same name in the group `resource.k8s.io`, which kubectl prefers.
    #[test]
    fn kubectl_commands_in_messages_and_documents_name_the_group_of_resourceslices() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for folder in ["docs", "control/liqoctl/src", "control/manager/src"] {
            collect(&root.join(folder), &mut files);
        }
        const COMMAND: &str = concat!("kubectl", " ");
        let mut commands = 0;
        for file in files {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let lines = text.lines().filter(|line| line.contains(COMMAND));
            for line in lines {
                for (at, name) in line.match_indices("resourceslices") {
                    let rest = &line[at + name.len()..];
                    let is_full = rest.starts_with(".authentication.liqo.io");
                    assert!(is_full, "{}: {line}", file.display());
                    commands += 1;
                }
            }
        }
        assert!(commands > 0, "the remedy of `uninstall` is one");
    }

    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(&path, files),
                false => files.push(path),
            }
        }
    }
}
