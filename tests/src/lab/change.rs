//! Functions that change a running laboratory.

use super::Lab;
use super::fabric::{self, MappedAddress, Remote, Role};
use super::process::Process;
use super::spec::{ClusterSpec, PeeringSpec};
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;

impl Lab {
    /// Adds a cluster without starting gateways and route agents. [`Lab::start`] starts them.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is in use, or if the kernel refuses a request.
    pub fn add_cluster(&mut self, spec: ClusterSpec) -> Result<()> {
        self.build_cluster(spec)
    }

    /// Adds a peering to the desired state of both clusters. [`Lab::write_fabrics`] applies the
    /// change.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the clusters does not exist.
    pub fn add_peering(&mut self, peering: PeeringSpec) -> Result<()> {
        self.agree(peering)
    }

    /// Removes a peering from the desired state of both clusters. [`Lab::write_fabrics`] applies
    /// the change.
    ///
    /// # Errors
    ///
    /// Returns an error if the two clusters do not peer.
    pub fn remove_peering(&mut self, a: &str, b: &str) -> Result<()> {
        let count = self.peerings.len();
        self.peerings
            .retain(|peering| peering.remote_of(a) != Some(b));
        ensure!(self.peerings.len() < count, "{a} and {b} do not peer");
        self.remove_remote(a, b)?;
        self.remove_remote(b, a)
    }

    /// Adds a remote cluster to the desired state of `cluster` only. `id` is the cluster ID of the
    /// remote cluster, which need not be in the laboratory.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such cluster.
    pub fn add_remote(&mut self, cluster: &str, id: &str, remote: Remote) -> Result<()> {
        self.desired_mut(cluster)?
            .remotes
            .insert(id.to_owned(), remote);

        Ok(())
    }

    /// Removes the remote cluster `id` from the desired state of `cluster` only.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such cluster.
    pub fn remove_remote(&mut self, cluster: &str, id: &str) -> Result<()> {
        self.desired_mut(cluster)?.remotes.remove(id);

        Ok(())
    }

    /// Adds an IP object that maps `ip` to an address in the external CIDR.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such cluster.
    pub fn map_address(
        &mut self,
        cluster: &str,
        name: &str,
        ip: Ipv4Addr,
        masquerade: bool,
    ) -> Result<()> {
        let address = MappedAddress { ip, masquerade };
        self.desired_mut(cluster)?
            .ips
            .insert(name.to_owned(), address);

        Ok(())
    }

    /// Returns a mutable reference to the desired state of a cluster. Nodes and gateways are not
    /// part of this state.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such cluster.
    pub fn desired_mut(&mut self, cluster: &str) -> Result<&mut fabric::Desired> {
        self.desired
            .get_mut(cluster)
            .with_context(|| format!("there is no cluster {cluster}"))
    }

    /// Adds a node with a route agent to a running cluster, and returns the node's number.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a request, or if `gateway plan` fails.
    pub fn add_node(&mut self, cluster: &str) -> Result<usize> {
        let number = self.cluster_mut(cluster).add_node()?;
        self.cluster(cluster).expose()?;
        self.write_fabric(cluster)?;
        self.start_agent(cluster, number)?;

        Ok(number)
    }

    /// Adds a gateway replica to a running cluster, and returns the replica's number.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a request, or if `gateway plan` fails.
    pub fn add_gateway(&mut self, cluster: &str) -> Result<usize> {
        let number = self.cluster_mut(cluster).add_gateway()?;
        self.write_fabric(cluster)?;
        self.start_gateway(cluster, number)?;
        self.cluster(cluster).expose()?;

        Ok(number)
    }

    /// Sets the readiness of a gateway replica in the EndpointSlice. Only ready replicas are
    /// backends of the exposed port.
    ///
    /// # Errors
    ///
    /// Returns an error if `nft` or `gateway plan` fails.
    pub fn set_ready(&mut self, cluster: &str, gateway: usize, ready: bool) -> Result<()> {
        self.cluster_mut(cluster)
            .gateways
            .get_mut(gateway - 1)
            .with_context(|| format!("there is no gateway {gateway}"))?
            .ready = ready;
        self.cluster(cluster).expose()?;
        self.write_fabric(cluster)
    }

    /// Simulates a power failure of a node. The node's links, processes and gateway pods are
    /// removed. The fabric file does not change.
    ///
    /// # Errors
    ///
    /// Returns an error if a namespace of the node or its pods cannot be removed.
    pub fn kill_node(&mut self, cluster: &str, node: usize) -> Result<()> {
        let node = self
            .cluster_mut(cluster)
            .nodes
            .get_mut(node - 1)
            .with_context(|| format!("there is no node {node}"))?;
        node.alive = false;
        let name = node.name.clone();
        // A power failure interrupts the link of the node first. The node is therefore removed
        // before its pods.
        node.netns.destroy()?;
        let lost: Vec<_> = self
            .cluster(cluster)
            .gateways
            .iter()
            .filter(|gateway| gateway.pod.node == name)
            .map(|gateway| gateway.pod.netns.clone())
            .collect();

        lost.iter().try_for_each(super::netns::Netns::destroy)
    }

    /// Writes the fabric files of all clusters. See [`Lab::write_fabric`].
    ///
    /// # Errors
    ///
    /// Returns an error if `gateway plan` rejects a file.
    pub fn write_fabrics(&mut self) -> Result<()> {
        let names: Vec<String> = self.clusters.keys().cloned().collect();
        names.iter().try_for_each(|name| self.write_fabric(name))
    }

    /// Writes the fabric file of one cluster. The cluster's running processes reload the file.
    ///
    /// The file contains the desired state, and the addresses that `gateway plan` allocates.
    ///
    /// # Errors
    ///
    /// Returns an error if `gateway plan` rejects the file.
    pub fn write_fabric(&self, cluster: &str) -> Result<()> {
        let desired = self
            .desired
            .get(cluster)
            .with_context(|| format!("there is no cluster {cluster}"))?;
        let mut objects = fabric::objects(self.cluster(cluster), desired);
        let path = self.fabric_path(cluster);
        if path.exists() {
            objects = fabric::keep_plan(objects, &self.objects(cluster)?);
        }

        // `gateway plan` changes a draft, which is renamed afterwards. Other processes thus never
        // read a partial file.
        let draft = path.with_extension("yaml.draft");
        fs::write(&draft, fabric::print(&objects)?)
            .with_context(|| format!("failed to write {draft:?}"))?;
        self.plan(&draft)?;
        fs::rename(&draft, &path).with_context(|| format!("failed to replace {path:?}"))
    }

    fn plan(&self, draft: &std::path::Path) -> Result<()> {
        let output = std::process::Command::new(&self.binaries.gateway)
            .arg("plan")
            .arg(draft)
            .output()
            .with_context(|| format!("failed to run {:?}", self.binaries.gateway))?;
        if !output.status.success() {
            bail!(
                "gateway plan refused {draft:?}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }

        Ok(())
    }

    /// Starts the gateway replica with this number. Numbers start at 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing.
    pub fn start_gateway(&mut self, cluster: &str, number: usize) -> Result<()> {
        let pod = self.cluster(cluster).gateway(number).pod.clone();
        let instance = self.gateway_instance(cluster, number);
        let spec = &self.cluster(cluster).spec;
        let args: Vec<OsString> = vec![
            "run".into(),
            "--config".into(),
            self.fabric_path(cluster).into(),
            "--keys".into(),
            self.key_dir(cluster).into(),
            "--replica".into(),
            pod.name.into(),
            "--lanes".into(),
            spec.lanes.to_string().into(),
            "--instance".into(),
            instance.clone().into(),
            "--run-dir".into(),
            self.socket_dir().into(),
        ];
        let program = self.binaries.gateway.clone();
        self.start_process(instance, &pod.netns, program, args)
    }

    /// Starts the route agent of the node with this number. Numbers start at 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing.
    pub fn start_agent(&mut self, cluster: &str, node: usize) -> Result<()> {
        let instance = self.agent_instance(cluster, node);
        let node = self.cluster(cluster).node(node);
        let netns = node.netns.clone();
        let args: Vec<OsString> = vec![
            "run".into(),
            "--config".into(),
            self.fabric_path(cluster).into(),
            "--node".into(),
            node.name.clone().into(),
            "--instance".into(),
            instance.clone().into(),
            "--run-dir".into(),
            self.socket_dir().into(),
        ];
        let program = self.binaries.route_agent.clone();
        self.start_process(instance, &netns, program, args)
    }

    fn start_process(
        &mut self,
        instance: String,
        netns: &super::netns::Netns,
        program: std::path::PathBuf,
        args: Vec<OsString>,
    ) -> Result<()> {
        let log = self.log_dir().join(format!("{instance}.log"));
        let process = self
            .processes
            .entry(instance.clone())
            .or_insert_with(|| Process::new(instance, netns, program, args, log));

        process.start()
    }

    /// Returns the process of the gateway replica with this number. Numbers start at 1.
    ///
    /// # Panics
    ///
    /// Panics if the gateway was never started.
    pub fn gateway(&mut self, cluster: &str, number: usize) -> &mut Process {
        let instance = self.gateway_instance(cluster, number);
        self.process(&instance)
    }

    /// Returns the process of the route agent on the node with this number. Numbers start at 1.
    ///
    /// # Panics
    ///
    /// Panics if the route agent was never started.
    pub fn agent(&mut self, cluster: &str, node: usize) -> &mut Process {
        let instance = self.agent_instance(cluster, node);
        self.process(&instance)
    }

    fn process(&mut self, instance: &str) -> &mut Process {
        let process = self.processes.get_mut(instance);
        process.unwrap_or_else(|| panic!("{instance} was never started"))
    }

    /// Returns the instance name of a gateway, which is unique on the machine.
    pub fn gateway_instance(&self, cluster: &str, number: usize) -> String {
        self.identity
            .qualify(&format!("{cluster}-gateway-{number}"))
    }

    /// Returns the instance name of a route agent, which is unique on the machine.
    pub fn agent_instance(&self, cluster: &str, node: usize) -> String {
        self.identity
            .qualify(&format!("{cluster}-{node}-route-agent"))
    }

    /// Adds a peering to the desired state of both clusters.
    pub(super) fn agree(&mut self, peering: PeeringSpec) -> Result<()> {
        let (addresses, port) = self.cluster(&peering.server).endpoint();
        let addresses = addresses.iter().map(Ipv4Addr::to_string).collect();
        let sides = [
            (&peering.client, Role::Client { addresses, port }),
            (&peering.server, Role::Server),
        ];
        for (own, role) in sides {
            let other = peering
                .remote_of(own)
                .context("the two sides of a peering are the same cluster")?;
            let spec = &self.cluster(other).spec;
            let remote = Remote {
                pod_cidrs: spec.pod_cidrs.clone(),
                external_cidr: spec.external_cidr,
                role,
                mtu: peering.mtu,
                public_key: self.public_key(other, own)?,
            };
            self.add_remote(own, other, remote)?;
        }
        self.peerings.push(peering);

        Ok(())
    }
}
