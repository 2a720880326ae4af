use iogate_sim::scenario::*;
use iogate_sim::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap();
    let rest: Vec<String> = args.collect();
    let quick = rest.iter().any(|a| a == "quick");
    let settings: Vec<String> = rest.into_iter().filter(|a| a != "quick").collect();
    let text = std::fs::read_to_string(&path).unwrap();
    let open = |_: &str| Err("no".to_string());
    let plan = match Plan::read(&Source { name: &path, text: &text, settings: &settings, quick, open: &open })
    {
        Ok(p) => p,
        Err(e) => {
            println!("{e}");
            return;
        }
    };
    eprintln!("{} points {} runs", plan.points.len(), plan.runs());
    let t = std::time::Instant::now();
    let mut total = 0;
    for p in &plan.points {
        let t = std::time::Instant::now();
        let r = world::simulate(&p.scenario, 1, &mut ());
        match r {
            Ok(r) => {
                total += r.requests;
                let mean: f64 = r.apps.iter().map(|a| a.end.since(a.submitted).as_secs_f64()).sum::<f64>()
                    / r.apps.len() as f64;
                let step: f64 = r.apps.iter().map(|a| a.step_time.as_secs_f64()).sum::<f64>()
                    / r.apps.iter().map(|a| a.steps).sum::<u64>().max(1) as f64;
                let bytes: u64 = r.apps.iter().map(|a| a.bytes).sum();
                println!(
                    "{:70} makespan {:9.3} mean {:9.3} step {:8.4} MB/s {:7.1} disp {:8} req {:8} seeks {:8} lost {} to {} [{:.2}s {:.2}M/s]",
                    p.label(),
                    r.makespan.as_secs_f64(),
                    mean,
                    step,
                    bytes as f64 / 1e6 / r.makespan.as_secs_f64(),
                    r.servers.iter().map(|s| s.dispatches).sum::<u64>(),
                    r.requests,
                    r.servers.iter().map(|s| s.repositions).sum::<u64>(),
                    r.network.lost,
                    r.network.timeouts,
                    t.elapsed().as_secs_f64(),
                    r.requests as f64 / 1e6 / t.elapsed().as_secs_f64()
                );
            }
            Err(e) => println!("{}: {e}", p.label()),
        }
    }
    println!("{total} requests {:.1}s", t.elapsed().as_secs_f64());
}
