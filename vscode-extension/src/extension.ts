// Entry point: one language client, one status item, one tree per view. No logic of its own: the server knows, this shows.
import * as vscode from 'vscode';
import { LanguageClient, State } from 'vscode-languageclient/node';
import { makeClient } from './server';
import { StatusItem, StatusParams } from './status';
import { TreeNode, TreeView, views } from './tree';

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const log = vscode.window.createOutputChannel('FlagOS');
  const status = new StatusItem();
  const trees = views.map((view) => new TreeView(view, async (name) => {
    if (!client || client.state !== State.Running) throw new Error('the language server is not running');
    const reply = await client.sendRequest<TreeNode[] | { nodes: TreeNode[] }>('flagos/tree', { view: name });
    return Array.isArray(reply) ? reply : reply.nodes;
  }));
  const refresh = () => trees.forEach((tree) => tree.refresh());

  const start = async () => {
    status.starting();
    try {
      client = makeClient(context, log);
      client.onNotification('flagos/status', (params: StatusParams) => {
        status.update(params);
        refresh();
      });
      client.onDidChangeState(({ newState }) => {
        if (newState === State.Stopped) status.stopped('The FlagOS language server has stopped.');
      });
      await client.start();
      refresh();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      log.appendLine(text);
      status.stopped(text);
    }
  };

  context.subscriptions.push(
    log,
    status,
    ...views.map((view, i) => vscode.window.registerTreeDataProvider(`flagos.${view}`, trees[i])),
    vscode.commands.registerCommand('flagos.restart', async () => {
      await client?.dispose().catch(() => undefined);
      await start();
    }),
    vscode.commands.registerCommand('flagos.showLog', () => log.show()),
    vscode.commands.registerCommand('flagos.refresh', refresh),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}
