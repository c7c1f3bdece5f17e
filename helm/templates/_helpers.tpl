{{- define "baton.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "baton.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name }}
{{- $name = contains (include "baton.name" .) .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name (include "baton.name" .)) }}
{{- end }}
{{- $name = $name | trunc 40 | trimSuffix "-" }}
{{- /* Kubernetes wants names of Services to begin with a letter and to have no dots. It would refuse them only after other objects are made. */}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "Services can't be called '%s', as the release is named '%s': fullnameOverride takes a name that begins with a letter and has only a-z, 0-9 and - in it" $name .Release.Name) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The labels that select pods. They never change in the life of a release, as long as nameOverride does not. Takes (dict "root" $ "component" NAME). */}}
{{- define "baton.selector" -}}
app.kubernetes.io/name: {{ include "baton.name" .root | toYaml }}
app.kubernetes.io/instance: {{ .root.Release.Name | toYaml }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "baton.labels" -}}
{{ include "baton.selector" . }}
app.kubernetes.io/part-of: baton
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image of a part. Its own values override the shared ones. A shared digest is not used if the part has its own
     repository or tag. Takes (dict "root" $ "component" "router|prefill|decode"). */}}
{{- define "baton.image" -}}
{{- $all := .root.Values.image -}}
{{- $own := (get .root.Values .component).image | default dict -}}
{{- $repository := $own.repository | default $all.repository -}}
{{- $digest := $own.digest | default (ternary $all.digest "" (empty (or $own.repository $own.tag))) -}}
{{- if $digest }}{{ $repository }}@{{ $digest }}
{{- else }}{{ $repository }}:{{ $own.tag | default $all.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "baton.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "baton.fullname" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "baton.secretName" -}}
{{ .Values.attach.existingSecret | default (printf "%s-attach" (include "baton.fullname" .)) }}
{{- end }}

{{/* "yes" if the router serves HTTP. An upgrade with --reuse-values from a version without router.http has no such value. */}}
{{- define "baton.http" -}}
{{- if dig "enabled" false (.Values.router.http | default dict) }}yes{{ end }}
{{- end }}

{{/* The Secret with the API keys that clients need; empty if clients need none. */}}
{{- define "baton.apiKeysSecret" -}}
{{- $keys := .Values.router.apiKeys | default dict -}}
{{- $keys.existingSecret | default (ternary (printf "%s-api-keys" (include "baton.fullname" .)) "" (dig "create" false $keys)) -}}
{{- end }}

{{/* The environment of a client inside the cluster that needs a key. */}}
{{- define "baton.apiKeysEnv" -}}
{{- with include "baton.apiKeysSecret" . -}}
- name: API_KEYS
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: {{ $.Values.router.apiKeys.secretKey | quote }}}}
{{- end }}
{{- end }}

{{/* Shell commands by which that client takes the first of the keys. Lines that begin with # are no keys. */}}
{{- define "baton.takeApiKey" -}}
{{- if include "baton.apiKeysSecret" . -}}
BATON_API_KEY=$(printf '%s\n' "$API_KEYS" | sed -n '/^[[:space:]]*[^#[:space:]]/{s/[[:space:]]//g;p;q}')
export BATON_API_KEY
{{- end }}
{{- end }}

{{/* The folder or GGUF file that --model names. An upgrade with --reuse-values from a version without model.file has no such
     value. */}}
{{- define "baton.modelPath" -}}
{{- include "baton.modelFolder" . }}{{ with .Values.model.file }}/{{ . }}{{ end }}
{{- end }}

{{/* The model's folder, or the folder that its GGUF file is in. */}}
{{- define "baton.modelFolder" -}}
{{- if eq .Values.model.source "image" }}
{{- .Values.model.path | default "/usr/share/baton/models/demo" }}
{{- else if .Values.model.path }}
{{- printf "/models/%s" (trimAll "/" .Values.model.path) }}
{{- else }}/models
{{- end }}
{{- end }}

{{/* The claim that the model lies in. */}}
{{- define "baton.claimName" -}}
{{- $own := ternary (printf "%s-model" (include "baton.fullname" .)) "" (eq (include "baton.makesClaim" .) "yes") -}}
{{- required "model.source is pvc: model.pvc.claimName is missing (or model.pvc.create.enabled, for the chart to make one)" (.Values.model.pvc.claimName | default $own) -}}
{{- end }}

{{- define "baton.makesClaim" -}}
{{- if dig "create" "enabled" false .Values.model.pvc }}yes{{ end }}
{{- end }}

{{/* The name of the model that a Job fetches into the claim; empty if no Job does. */}}
{{- define "baton.fetches" -}}
{{- if eq .Values.model.source "pvc" }}{{ (.Values.model.fetch | default dict).name }}{{ end }}
{{- end }}

{{- define "baton.servesDemo" -}}
{{- if and (eq .Values.model.source "image") (not .Values.model.path) }}yes{{ end }}
{{- end }}

{{/* "yes" if prompts can be handed over: there are prefill workers, and the router may use them. */}}
{{- define "baton.splits" -}}
{{- $some := or .Values.prefill.autoscaling.enabled (gt (int64 .Values.prefill.replicas) 0) -}}
{{- if or (eq .Values.router.mode "disaggregated") (and (eq .Values.router.mode "auto") $some) }}yes{{ end }}
{{- end }}

{{/* Bytes of a size as the programs read it: 256Mi or 256MiB (x 2^20), 256M or 256MB (x 10^6), in any case. */}}
{{- define "baton.bytes" -}}
{{- $text := lower . | trimSuffix "b" -}}
{{- $unit := regexFind "[kmgtp]i?$" $text -}}
{{- $scale := get (dict "" 1 "k" 1e3 "m" 1e6 "g" 1e9 "t" 1e12 "p" 1e15 "ki" 1024 "mi" 1048576 "gi" 1073741824 "ti" 1099511627776 "pi" 1125899906842624) $unit -}}
{{- mulf (trimSuffix $unit $text | float64) $scale | int64 -}}
{{- end }}

{{/* Bytes of a quantity as Kubernetes reads it: 256Mi, 256M, 1.5Gi, 1e9, 268435456000m. Upper and lower case differ: m is a thousandth. */}}
{{- define "baton.quantityBytes" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "([KMGTPE]i|[mkMGTPE])$" $text -}}
{{- $scale := get (dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) $unit -}}
{{- mulf (trimSuffix $unit $text | float64) $scale | int64 -}}
{{- end }}

{{/* The memory limit of a part's containers; empty if there is none. Takes the part's values. */}}
{{- define "baton.memoryLimit" -}}
{{- with get (get (.resources | default dict) "limits" | default dict) "memory" }}{{ toString . }}{{ end }}
{{- end }}

{{/* The value of --kv-bytes. In host memory a worker chooses the size itself only if it has a memory limit: without a
     limit it would take its share of the whole node. Takes the part's values. */}}
{{- define "baton.kvBytes" -}}
{{- if ne .kvMemory "auto" }}{{ include "baton.bytes" .kvMemory }}
{{- else if or (eq .backend "cuda") (include "baton.memoryLimit" .) }}auto
{{- else }}268435456
{{- end }}
{{- end }}

{{/* Seconds between the decision to end a pod and SIGTERM. Takes (dict "root" $ "component" NAME). */}}
{{- define "baton.preStopSeconds" -}}
{{- $pool := get .root.Values .component -}}
{{- if not (kindIs "invalid" $pool.drain.preStopSeconds) }}{{ int64 $pool.drain.preStopSeconds }}
{{- /* The longest age of a connection, after DNS and Services no longer list the router. */}}
{{- else if eq .component "router" }}{{ add (ceil (mulf 1.2 $pool.maxConnectionAgeSeconds)) (ternary 30 5 .root.Values.service.direct) }}
{{- else }}0
{{- end }}
{{- end }}

{{/* Beyond their grace time, the programs need up to 8 s to write their last events and release what they hold. */}}
{{- define "baton.terminationGraceSeconds" -}}
{{- $pool := get .root.Values .component -}}
{{- add (include "baton.preStopSeconds" . | int64) (int64 $pool.drain.graceSeconds) 10 -}}
{{- end }}

{{/* Seconds that a pod may take to get ready before its rollout counts as failed. The sum of Kubernetes' default of ten
     minutes, for the image; half an hour if a model is fetched first; and the longest start of any part, because no part
     is ready without the others. */}}
{{- define "baton.progressSeconds" -}}
{{- $start := 0 -}}
{{- range $component := list "router" "prefill" "decode" }}
{{- $probe := (get $.root.Values $component).probes.startup -}}
{{- $start = max $start (add (dig "initialDelaySeconds" 0 $probe) (mul (dig "periodSeconds" 10 $probe) (dig "failureThreshold" 3 $probe))) -}}
{{- end }}
{{- add $start (ternary 2400 600 (or (eq .root.Values.model.source "init") (ne "" (include "baton.fetches" .root)))) (get .root.Values .component).minReadySeconds -}}
{{- end }}
