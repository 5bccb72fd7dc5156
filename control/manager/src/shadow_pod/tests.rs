use side::Side;

mod demands;
mod golden;
mod hostile;
mod lifetime;
mod policies;
mod quotas;
mod side;
mod terms;
