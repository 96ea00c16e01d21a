"""`./dev bench [NAME] [--json]`: one line a figure, with its bar; rivals are measured in the same run.

Each figure is one function in a file of this folder, registered with @figure. Absolute figures are the median of five
runs; ratios are medians of alternating pairs (A B A B ...). The load of other processes is printed with the table.
"""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from figures import FIGURES, load  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="./dev bench")
    parser.add_argument("name", nargs="?", help="a figure, or the beginning of several names")
    parser.add_argument("--json", action="store_true", help="one JSON object a line and nothing else")
    args = parser.parse_args()
    load()
    chosen = [f for f in FIGURES if not args.name or f.name == args.name or f.name.startswith(args.name + ".")]
    if not chosen:
        print(f"bench: no figure {args.name}; there are: {', '.join(f.name for f in FIGURES)}", file=sys.stderr)
        return 2
    results = []
    for figure in chosen:
        result = figure.run()
        results.append(result)
        if args.json:
            print(json.dumps(result), flush=True)
        else:
            rival = f"   {result['rival']}: {result['rival_value']:.4g} {result['unit']}" if result["rival"] else ""
            print(f"{result['name']:<18} {result['value']:>10.4g} {result['unit']:<5}{rival}", flush=True)
    if not args.json and not args.name:
        print(f"\n{'figure':<18} {'value':>12} {'bar':>12}  ok   (load average {os.getloadavg()[0]:.2f})")
        for r in results:
            sign = "<=" if r["better"] == "lower" else ">="
            value = r["ratio"] if r["unit"] == "x" else r["value"]
            print(f"{r['name']:<18} {value:>10.4g} {r['unit']:<1} {sign}{r['bar']:>8.4g}  {'yes' if r['ok'] else 'NO'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
