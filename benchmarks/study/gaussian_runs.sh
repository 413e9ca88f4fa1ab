#!/usr/bin/env bash
# All runs behind the numbers of version 0.8.0, one at a time with one thread; finished ones are not made again.
#     benchmarks/study/gaussian_runs.sh FILES RUNS
# FILES is the folder of real data, RUNS that of the runs, which takes about two hours of one core to fill.
set -e
files=$1 runs=$2
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
study="python benchmarks/study/gaussians.py"

for column in cylinder ns2d planetswe turbulent airfoil radar channel med-wind era5-uk ns3d; do
  gpo bench table1 --models gpo --repeated gpo --benchmarks "$column" --files "$files" --runs "$runs/bench" --out "$runs/table"
done
for seed in 0 1 2; do
  [ -e "$runs/noiseless-$seed/results.json" ] ||
    gpo run ns2d --preset quick --coarsen 2 --noise 0 --learning-rate 6e-3 --budget-cpu 120 --epochs 100000 --patience 100000 --seed $seed --quiet --out "$runs/noiseless-$seed"
  [ -e "$runs/default-$seed/results.json" ] ||
    gpo run ns2d --preset quick --coarsen 2 --budget-cpu 120 --seed $seed --quiet --out "$runs/default-$seed"
done
$study ns2d --variants default hat frozen shared weights adamw --seconds 60
for column in turbulent planetswe radar era5-uk cylinder airfoil ssh-med; do
  $study $column --files "$files" --variants one four default --seconds 60
done
python benchmarks/nowcast.py --files "$files" --seeds 0 --settings="--budget-cpu 120" --split test --runs "$runs/nowcast"
python benchmarks/motion.py "$runs"/noiseless-?
python benchmarks/frames_between.py "$runs"/noiseless-?
