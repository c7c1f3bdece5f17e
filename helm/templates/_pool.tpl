{{/* Templates for one kind of process. All take (dict "root" $ "component" "router|prefill|decode"). */}}

{{/* Refuses values of a part that do not fit together, which the schema can't check. */}}
{{- define "baton.refuseMisfits" -}}
{{- $pool := get .root.Values .component -}}
{{- $a := $pool.autoscaling -}}
{{- if and $a.enabled (gt (int64 $a.minReplicas) (int64 $a.maxReplicas)) }}
{{- fail (printf "%s.autoscaling.minReplicas is %d, more than maxReplicas, which is %d" .component (int64 $a.minReplicas) (int64 $a.maxReplicas)) }}
{{- end }}
{{- if and $a.enabled (not $a.cpuPercent) (not $a.metrics) }}
{{- fail (printf "%s.autoscaling.enabled is true, cpuPercent null and metrics empty: the autoscaler would have no metric, and Kubernetes would then choose 80 %% of CPU; set one of the two" .component) }}
{{- end }}
{{- /* Other parts of the manifest depend on these values too: grace periods, ports, probes. */}}
{{- $instead := dict "listen" (printf "%s.port" .component) "metrics-listen" "metrics.port" "drain-grace" (printf "%s.drain.graceSeconds" .component) -}}
{{- if eq .component "router" }}
{{- $_ := set $instead "max-connection-age" "router.maxConnectionAgeSeconds" }}
{{- $_ := set $instead "pair-wait" "router.pairWaitSeconds" }}
{{- $_ := set $instead "http-listen" "router.http.enabled and router.http.port" }}
{{- $_ := set $instead "api-key-file" "router.apiKeys.existingSecret" }}
{{- end }}
{{- range $arg := $pool.args }}
{{- $flag := regexFind "^--?[a-z_-]+" $arg | trimPrefix "-" | trimPrefix "-" | replace "_" "-" }}
{{- with get $instead $flag }}
{{- fail (printf "%s.args has '%s', which would contradict other parts of the manifest; set %s" $.component $arg .) }}
{{- end }}
{{- end }}
{{- if and .root.Values.metrics.enabled (eq (int64 .root.Values.metrics.port) (int64 $pool.port)) }}
{{- fail (printf "metrics.port and %s.port are both %d; one pod listens at both, so give them different numbers" .component (int64 $pool.port)) }}
{{- end }}
{{- $init := .root.Values.model.init -}}
{{- if and (eq .root.Values.model.source "init") (not (or $init.image $init.command $init.args)) }}
{{- fail "model.source is 'init', but model.init has no image, command or args: the init container would fetch nothing; set one of the three" }}
{{- end }}
{{- if ne .component "router" }}
{{- $gpus := int64 $pool.gpu.count -}}
{{- if and (eq $pool.backend "cuda") (eq $gpus 0) (not (dig "claims" list ($pool.resources | default dict))) }}
{{- fail (printf "%s.backend is 'cuda' and %s.gpu.count 0: the worker would have no GPU; set it to 1, or name a claim in %s.resources.claims" .component .component .component) }}
{{- end }}
{{- if and (ne $pool.backend "cuda") (gt $gpus 0) }}
{{- fail (printf "%s.gpu.count is %d and %s.backend '%s', which uses no GPU; set backend to cuda" .component $gpus .component (default "cpu" $pool.backend)) }}
{{- end }}
{{- $limit := include "baton.memoryLimit" $pool -}}
{{- if and $limit (ne $pool.kvMemory "auto") (not (eq $pool.backend "cuda")) }}
{{- if ge (include "baton.bytes" $pool.kvMemory | int64) (include "baton.quantityBytes" $limit | int64) }}
{{- fail (printf "%s.kvMemory is %s, and %s.resources.limits.memory %s, which has to hold the model's weights and some 200 MiB beside the KV pool: raise the limit, or lower kvMemory or make it auto" .component $pool.kvMemory .component $limit) }}
{{- end }}
{{- end }}
{{- $block := ternary (ternary 64 16 (eq $pool.backend "cuda")) .root.Values.kv.blockTokens (eq (toString .root.Values.kv.blockTokens) "auto") | int64 -}}
{{- if and (eq .component "prefill") (mod (int64 $pool.chunkTokens) $block) }}
{{- fail (printf "prefill.chunkTokens is %d; it takes whole KV blocks, of %d tokens each (kv.blockTokens)" (int64 $pool.chunkTokens) $block) }}
{{- end }}
{{- if and (not (has $pool.backend (list "" "cpu"))) (ne .root.Values.numerics "auto") }}
{{- fail (printf "numerics is '%s'; with %s.backend '%s' it must be auto, because only the cpu backend has other orders of sums" .root.Values.numerics .component $pool.backend) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The arguments of a program. toYaml quotes them, so names and paths may have any characters. */}}
{{- define "baton.args" -}}
{{- $v := .root.Values -}}
{{- $pool := get $v .component -}}
{{- $args := list (printf "--listen=%s:%d" $v.listenAddress (int64 $pool.port)) (printf "--model=%s" (include "baton.modelPath" .root)) -}}
{{- with $v.model.name }}
{{- $args = append $args (printf "--model-name=%s" .) }}
{{- end }}
{{- if eq .component "router" }}
{{- $args = concat $args (list
      (printf "--mode=%s" $pool.mode)
      (printf "--max-connection-age=%ds" (int64 $pool.maxConnectionAgeSeconds))
      (printf "--pair-wait=%ds" (int64 $pool.pairWaitSeconds))) }}
{{- /* An upgrade with --reuse-values from a version without this key has no value here. */}}
{{- with $pool.policy }}
{{- $args = append $args (printf "--policy=%s" .) }}
{{- end }}
{{- if include "baton.http" .root }}
{{- $args = append $args (printf "--http-listen=%s:%d" $v.listenAddress (int64 $pool.http.port)) }}
{{- if $pool.http.metrics }}
{{- $args = append $args "--http-metrics" }}
{{- end }}
{{- with $pool.http.allowOrigin }}
{{- $args = append $args (printf "--http-allow-origin=%s" .) }}
{{- end }}
{{- with $pool.http.unknownFields }}
{{- $args = append $args (printf "--http-unknown-fields=%s" .) }}
{{- end }}
{{- end }}
{{- if include "baton.apiKeysSecret" .root }}
{{- $args = append $args "--api-key-file=/etc/baton/api-keys/keys" }}
{{- end }}
{{- else }}
{{- $args = concat $args (list
      "--advertise=$(POD_IP)"
      (printf "--routers=%s-routers:%d" (include "baton.fullname" .root) (int64 $v.router.port))) }}
{{- with $pool.backend }}
{{- $args = append $args (printf "--backend=%s" .) }}
{{- end }}
{{- $args = concat $args (list
      (printf "--numerics=%s" $v.numerics)
      (printf "--threads=%d" (int64 $pool.threads))
      (printf "--kv-bytes=%s" (include "baton.kvBytes" $pool))
      (printf "--kv-transports=%s" $v.kv.transports)
      (printf "--kv-net-device=%s" $v.kv.netDevice)
      (printf "--kv-type=%s" $v.kv.type)
      (printf "--block-tokens=%s" (eq (toString $v.kv.blockTokens) "auto" | ternary "auto" (int64 $v.kv.blockTokens | toString)))
      (printf "--context=%d" (int64 $pool.context))) }}
{{- with int64 $pool.chunkTokens }}
{{- $args = append $args (printf "--chunk-tokens=%d" .) }}
{{- end }}
{{- end }}
{{- $args = concat $args (list
      (printf "--drain-grace=%ds" (int64 $pool.drain.graceSeconds))
      (printf "--log-level=%s" $v.log.level)
      (printf "--log-format=%s" $v.log.format)) }}
{{- if $v.metrics.enabled }}
{{- $args = append $args (printf "--metrics-listen=%s:%d" $v.listenAddress (int64 $v.metrics.port)) }}
{{- end }}
{{- concat $args ($pool.args | default list) | toYaml }}
{{- end }}

{{/* The probe that succeeds when this process can do its work. */}}
{{- define "baton.readyProbe" -}}
{{- if and (eq .component "router") (include "baton.http" .root) -}}
httpGet: {port: http, path: /health}
{{- else -}}
grpc: {port: {{ int64 (get .root.Values .component).port }}, service: {{ include "baton.readyService" . }}}
{{- end }}
{{- end }}

{{/* The service of grpc.health.v1 that is SERVING when this process can do its work. */}}
{{- define "baton.readyService" -}}
{{- ternary "baton.v1.Inference" "ready" (eq .component "router") -}}
{{- end }}

{{/* The service of grpc.health.v1 that is SERVING while this process is alive and its threads make progress, as a router
     without workers is. */}}
{{- define "baton.aliveService" -}}
{{- get (dict "router" "baton.v1.Membership" "prefill" "baton.v1.PrefillWorker" "decode" "baton.v1.DecodeWorker") .component -}}
{{- end }}

{{/* The number of replicas to write although an autoscaler decides it. Mostly there is none, so that the autoscaler keeps
     its number, also in a rollback. But if an earlier manifest had a number, Helm removes it, and Kubernetes then takes 1.
     So once autoscaling is switched on in a running release, the current number is written, with an annotation by which
     later upgrades know this. */}}
{{- define "baton.keptReplicas" -}}
{{- $name := printf "%s-%s" (include "baton.fullname" .root) .component -}}
{{- $running := lookup "apps/v1" "Deployment" .root.Release.Namespace $name | default dict -}}
{{- $autoscaler := lookup "autoscaling/v2" "HorizontalPodAutoscaler" .root.Release.Namespace $name -}}
{{- if or (not $autoscaler) (dig "metadata" "annotations" "baton/autoscaled-later" "" $running) }}
{{- with dig "spec" "replicas" 0 $running | int64 }}{{ . }}{{ end }}
{{- end }}
{{- end }}

{{- define "baton.deployment" -}}
{{- $v := .root.Values -}}
{{- $pool := get $v .component -}}
{{- $gpus := dig "gpu" "count" 0 $pool | int64 -}}
{{- $preStop := include "baton.preStopSeconds" . | int64 -}}
{{- $kept := "" -}}
{{- if $pool.autoscaling.enabled }}{{ $kept = include "baton.keptReplicas" . }}{{ end -}}
{{- $http := and (eq .component "router") (include "baton.http" .root) -}}
{{- $apiKeys := ternary (include "baton.apiKeysSecret" .root) "" (eq .component "router") -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "baton.fullname" .root }}-{{ .component }}
  labels:
    {{- include "baton.labels" . | nindent 4 }}
  {{- if or $kept $pool.deploymentAnnotations }}
  annotations:
    {{- if $kept }}
    baton/autoscaled-later: "true"
    {{- end }}
    {{- with $pool.deploymentAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  {{- if not $pool.autoscaling.enabled }}
  replicas: {{ int64 $pool.replicas }}
  {{- else if $kept }}
  replicas: {{ $kept }}
  {{- end }}
  minReadySeconds: {{ int64 $pool.minReadySeconds }}
  progressDeadlineSeconds: {{ include "baton.progressSeconds" . }}
  strategy:
    {{- toYaml (ternary (omit $pool.strategy "rollingUpdate") $pool.strategy (eq (toString $pool.strategy.type) "Recreate")) | nindent 4 }}
  selector:
    matchLabels:
      {{- include "baton.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "baton.selector" . | nindent 8 }}
        app.kubernetes.io/part-of: baton
        {{- with $v.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $pool.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- $annotations := dict }}
      {{- with $v.attach.token }}
      {{- $_ := set $annotations "checksum/attach-token" (sha256sum .) }}
      {{- end }}
      {{- if and $v.metrics.enabled $v.metrics.annotations }}
      {{- $_ := set $annotations "prometheus.io/scrape" "true" }}
      {{- $_ := set $annotations "prometheus.io/port" (int64 $v.metrics.port | toString) }}
      {{- end }}
      {{- $annotations = merge (deepCopy $pool.podAnnotations) $annotations }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .component }}
        {{- with $annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "baton.serviceAccountName" .root | quote }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ include "baton.terminationGraceSeconds" . }}
      securityContext:
        {{- toYaml $pool.podSecurityContext | nindent 8 }}
      {{- with $v.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . | quote }}
        {{- end }}
      {{- end }}
      {{- with $pool.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      {{- with $pool.runtimeClassName }}
      runtimeClassName: {{ . | quote }}
      {{- end }}
      {{- with $pool.schedulerName }}
      schedulerName: {{ . | quote }}
      {{- end }}
      {{- with $pool.dnsPolicy }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- with $pool.dnsConfig }}
      dnsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pool.resourceClaims }}
      resourceClaims:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pool.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pool.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pool.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pool.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- $fetches := include "baton.fetches" .root }}
      {{- if or (eq $v.model.source "init") $fetches $pool.extraInitContainers }}
      initContainers:
        {{- with $pool.extraInitContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- if $fetches }}
        # Waits until baton-fetch has marked the model as complete.
        - name: model
          image: {{ include "baton.image" . }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          command: [sh, -c]
          args:
            - |
              trap 'exit 143' TERM  # without a trap, a shell that is process 1 ignores SIGTERM
              until grep -qF "\"$MODEL\"" "$COMPLETE" 2>/dev/null && grep -qF "\"$REVISION\"" "$COMPLETE" && grep -qF "\"${FILE:-$MODEL}\"" "$COMPLETE"; do
                echo "waiting until the Job has fetched $MODEL at $REVISION${FILE:+: $FILE}"
                sleep 5 & wait $!
              done
          env:
            - {name: NVIDIA_VISIBLE_DEVICES, value: void}
            - {name: MODEL, value: {{ $fetches | quote }}}
            - {name: REVISION, value: {{ $v.model.fetch.revision | quote }}}
            {{- with $v.model.file }}
            - {name: FILE, value: {{ . | quote }}}
            {{- end }}
            - {name: COMPLETE, value: {{ printf "%s/.baton-fetch.json" (include "baton.modelFolder" .root) | quote }}}
          resources: {requests: {cpu: 1m, memory: 8Mi}, limits: {cpu: 100m, memory: 64Mi}}
          securityContext:
            {{- toYaml $pool.securityContext | nindent 12 }}
          volumeMounts:
            - name: model
              mountPath: /models
              readOnly: true
      {{- end }}
      {{- if eq $v.model.source "init" }}
        - name: model
          image: {{ $v.model.init.image | default (include "baton.image" .) }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          {{- with $v.model.init.command }}
          command:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $v.model.init.args }}
          args:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          env:
            - {name: BATON_COMPONENT, value: {{ .component }}}
            - {name: NVIDIA_VISIBLE_DEVICES, value: void}
            {{- with $v.model.init.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $v.model.init.envFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $v.model.init.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- toYaml $pool.securityContext | nindent 12 }}
          volumeMounts:
            - name: model
              mountPath: /models
            - name: tmp
              mountPath: /tmp
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "baton.image" . }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          command: [baton-{{ .component }}]
          args:
            {{- include "baton.args" . | nindent 12 }}
          env:
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            - name: BATON_ATTACH_TOKEN
              valueFrom: {secretKeyRef: {name: {{ include "baton.secretName" .root | quote }}, key: {{ $v.attach.secretKey | quote }}}}
            {{- if eq $gpus 0 }}
            {{- /* If all containers run under NVIDIA's runtime, an image built for GPUs would otherwise see all GPUs of the node. */}}
            - {name: NVIDIA_VISIBLE_DEVICES, value: void}
            {{- end }}
            {{- with $pool.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $pool.envFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - name: grpc
              containerPort: {{ int64 $pool.port }}
            {{- if $http }}
            - name: http
              containerPort: {{ int64 $pool.http.port }}
            {{- end }}
            {{- if $v.metrics.enabled }}
            - name: metrics
              containerPort: {{ int64 $v.metrics.port }}
            {{- end }}
          startupProbe:
            grpc: {port: {{ int64 $pool.port }}, service: {{ include "baton.aliveService" . }}}
            {{- toYaml $pool.probes.startup | nindent 12 }}
          readinessProbe:
            {{- include "baton.readyProbe" . | nindent 12 }}
            {{- toYaml $pool.probes.readiness | nindent 12 }}
          livenessProbe:
            grpc: {port: {{ int64 $pool.port }}, service: {{ include "baton.aliveService" . }}}
            {{- toYaml $pool.probes.liveness | nindent 12 }}
          {{- if gt $preStop 0 }}
          lifecycle:
            preStop:
              exec:
                command: [sleep, "{{ $preStop }}"]
          {{- end }}
          {{- $resources := deepCopy $pool.resources }}
          {{- if gt $gpus 0 }}
          {{- $_ := set $resources "limits" (merge (dict $pool.gpu.resourceName $gpus) (get $resources "limits" | default dict)) }}
          {{- end }}
          # This policy makes `kubectl describe pod` show why a program refused to start.
          terminationMessagePolicy: FallbackToLogsOnError
          resources:
            {{- toYaml $resources | nindent 12 }}
          securityContext:
            {{- toYaml $pool.securityContext | nindent 12 }}
          volumeMounts:
            - name: tmp
              mountPath: /tmp
            {{- if ne $v.model.source "image" }}
            - name: model
              mountPath: /models
              readOnly: true
            {{- end }}
            {{- if $apiKeys }}
            - name: api-keys
              mountPath: /etc/baton/api-keys
              readOnly: true
            {{- end }}
            {{- if $pool.shm.sizeLimit }}
            - name: shm
              mountPath: /dev/shm
            {{- end }}
            {{- with $pool.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- with $pool.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- if eq $v.model.source "pvc" }}
        - name: model
          persistentVolumeClaim:
            claimName: {{ include "baton.claimName" .root | quote }}
            {{- /* While the Job writes to a volume, pods can't attach it read-only. */}}
            readOnly: {{ not $fetches }}
        {{- else if eq $v.model.source "hostPath" }}
        - name: model
          hostPath:
            path: {{ required "model.source is hostPath: model.hostPath.path is missing" $v.model.hostPath.path | quote }}
            type: Directory
        {{- else if eq $v.model.source "init" }}
        - name: model
          {{- if $v.model.init.sizeLimit }}
          emptyDir: {sizeLimit: {{ $v.model.init.sizeLimit }}}
          {{- else }}
          emptyDir: {}
          {{- end }}
        {{- end }}
        {{- with $apiKeys }}
        - name: api-keys
          secret:
            secretName: {{ . | quote }}
            items: [{key: {{ $pool.apiKeys.secretKey | quote }}, path: keys}]
        {{- end }}
        {{- with $pool.shm.sizeLimit }}
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: {{ . }}}
        {{- end }}
        {{- with $pool.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{- define "baton.autoscaler" -}}
{{- $pool := get .root.Values .component -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "baton.fullname" .root }}-{{ .component }}
  labels:
    {{- include "baton.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "baton.fullname" .root }}-{{ .component }}
  minReplicas: {{ int64 $pool.autoscaling.minReplicas }}
  maxReplicas: {{ int64 $pool.autoscaling.maxReplicas }}
  metrics:
    {{- with $pool.autoscaling.cpuPercent }}
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ int64 . }}}
    {{- end }}
    {{- with $pool.autoscaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $pool.autoscaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "baton.disruptionBudget" -}}
{{- $pool := get .root.Values .component -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "baton.fullname" .root }}-{{ .component }}
  labels:
    {{- include "baton.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $pool.pdb.maxUnavailable }}
  # Without workers no router is ready, and without routers no worker is ready. So a pod that is not ready must not block the drain of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "baton.selector" . | nindent 6 }}
{{- end }}
