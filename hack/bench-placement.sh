#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# bench-placement.sh KERF-LAB DIR   fills the cluster of DIR's node list with each of its pod lists (openb CSV), with the
# policies kerf, fgd, bestfit, dra-kerf and dra-firstfit and seeds 42 to 51. It prints the GPU allocation in percent when
# pods for 100 % of the GPUs have arrived, next to the published figures if DIR has published_allocation_percent.csv.
# Then it prints how many percent had arrived at the first rejection.
set -euo pipefail

lab=$1 dir=$2
nodes=$(find "$dir" -name '*node_list*.csv' | sort | head -n 1)
if [ -z "$nodes" ]; then
	echo "bench-placement: no *node_list*.csv in '$dir': see lab/README.md for where the traces are" >&2
	exit 1
fi

published() { # LIST POLICY: the mean of the published seeds at 100 %, or -
	[ -f "$dir/published_allocation_percent.csv" ] || { echo -; return; }
	awk -F, -v list="$1" -v policy="$2" '
		NR == 1 { for (i = 1; i <= NF; i++) if ($i == "100") at = i }
		$1 == list && $2 ~ policy { sum += $at; n++ }
		END { if (n) printf "%.2f\n", sum / n; else print "-" }' "$dir/published_allocation_percent.csv"
}

printf '%-32s %8s %8s %8s %8s %8s %12s %14s %18s\n' trace kerf online fgd bestfit dra-kerf dra-firstfit published-fgd published-bestfit
find "$dir" -name '*pod_list*.csv' | sort | while read -r pods; do
	list=$(basename "$pods" .csv)
	means=$(for typical in list online; do
		policies=kerf,fgd,bestfit,dra-kerf,dra-firstfit
		[ "$typical" = list ] || policies=kerf
		"$lab" --trace-nodes "$nodes" --trace-pods "$pods" --policy "$policies" --workload-model "$typical" --seeds 42-51 -o csv |
			awk -F, -v typical="$typical" '
				NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
				{ n[$1]++; sum[$1] += $column["allocated_percent_100"]; first[$1] += $column["first_failure_percent"] }
				END { for (p in sum) {
					name = typical == "online" ? "online" : p
					printf "%s=%.2f\n%s.first=%.2f\n", name, sum[p] / n[p], name, first[p] / n[p]
				} }'
	done)
	of() { sed -n "s/^$1=//p" <<<"$means"; }
	printf '%-32s %8s %8s %8s %8s %8s %12s %14s %18s\n' "$list" "$(of kerf)" "$(of online)" "$(of fgd)" "$(of bestfit)" \
		"$(of dra-kerf)" "$(of dra-firstfit)" "$(published "$list" FGD)" "$(published "$list" BestFit)"
	printf '%-32s %8s %8s %8s %8s %8s %12s\n' "  first rejection" "$(of kerf.first)" "$(of online.first)" "$(of fgd.first)" "$(of bestfit.first)" \
		"$(of dra-kerf.first)" "$(of dra-firstfit.first)"
	trace=${list#openb_pod_list_}
	means+=$(printf '\npublished-fgd=%s\npublished-bestfit=%s' "$(published "$list" FGD)" "$(published "$list" BestFit)")
	while IFS== read -r policy percent; do
		[ -z "$policy" ] || [ "$percent" = - ] || echo "RESULT placement.$trace.$policy $percent %"
	done <<<"$means"
done
