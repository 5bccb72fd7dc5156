mod absurd;
mod daemon_sets;
mod fixture;
mod pods;
mod renewal;
mod server;
mod shadow_pods;
