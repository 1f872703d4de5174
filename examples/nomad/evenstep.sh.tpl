# Where Evenstep did not place the job, the count of the group holds.
export EVENSTEP_NODES=2 EVENSTEP_RUN_ID='{{ env "NOMAD_JOB_ID" }}'
{{- $path := printf "nomad/jobs/%s" (env "NOMAD_JOB_ID") }}
{{- $rank := printf "evenstep_node_rank_%s" (env "node.unique.id") }}
{{- if nomadVarExists $path }}{{ with nomadVar $path }}{{ range .Tuples }}
{{- if .K | regexMatch "^evenstep_(nodes|run_id|batch_sizes|workload|policy)$" }}
export {{ .K | toUpper }}='{{ .V }}'
{{- else if eq .K $rank }}
export EVENSTEP_NODE_RANK='{{ .V }}'
{{- else if eq .K "evenstep_core" }}
[ -S '{{ .V | replaceAll "unix:" "" }}' ] && export EVENSTEP_ADDR='{{ .V }}'
{{- end }}{{ end }}{{ end }}{{ end }}
{{- $first := printf "%s.%s[0]" (env "NOMAD_JOB_ID") (env "NOMAD_GROUP_NAME") }}
{{- range nomadService "evenstep-rdzv" }}{{ if .Tags | contains $first }}
export EVENSTEP_ENDPOINT='{{ .Address }}:{{ .Port }}'
{{- end }}{{ end }}
export EVENSTEP_IS_HOST={{ if eq (env "NOMAD_ALLOC_INDEX") "0" }}true{{ else }}false{{ end }}
[ -n "$EVENSTEP_ENDPOINT" ]
