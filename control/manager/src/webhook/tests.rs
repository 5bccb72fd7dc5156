mod absurd;
mod daemon_sets;
mod fixture;
mod pods;
mod server;
mod shadow_pods;
